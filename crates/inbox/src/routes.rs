//! The inbox over HTTP: requests in, answers out. Nothing is decided here.
//!
//! `/api/notifications` and `/api/v1/notifications` are two doors to the same inbox, with the same ids and one count.

mod documents;
mod requests;

use std::collections::BTreeSet;

use axum::extract::State;
use bongsu_http::answer::{Accepted, Answer};
use bongsu_http::frame::language;
use bongsu_http::openapi::tagged;
use bongsu_http::{ApiError, Bulk, Identity, Page, Person, RouteState, Service, Small};
use bongsu_kernel::Code;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Text;
use bongsu_sql::Error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{Count, Deleted, Item, Items, Notified, ReadAnswer, Unread};
use self::requests::{EntryPath, ListQuery, NotifyBody};
use crate::list::Wanted;
use crate::settings::{Change, Settings, SettingsError};
use crate::{EntryId, Inbox, Notice, NotifyError};

/// None when nothing is recorded.
type InboxState = RouteState<Option<Inbox>>;

/// The routes of this part, with their documents. Without an inbox they say that there is none.
pub fn router(inbox: Option<Inbox>, identity: Identity) -> OpenApiRouter {
    let routes = OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read))
        .routes(routes!(read_all))
        .routes(routes!(delete))
        .routes(routes!(settings, change_settings))
        .routes(routes!(unread))
        .routes(routes!(read_v1))
        .routes(routes!(notify))
        .with_state(InboxState { part: inbox, identity });
    tagged("inbox", routes)
}

/// The records cannot be asked, or refuse what was asked.
fn away(error: &Error) -> ApiError {
    if let Error::Failed(_) = error {
        tracing::error!(%error, "the records refuse what the inbox asks");
        return ApiError::unexpected();
    }
    // For every request: that the database is away is said elsewhere, once.
    tracing::debug!(%error, "the inbox cannot be used");
    let text = Text::new("지금은 알림함을 사용할 수 없습니다.", "The inbox is not available right now.");
    ApiError::new(Code::Common503, text)
}

/// List notifications
///
/// Newest first. `nextCursor` is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/api/notifications",
    params(Page, ListQuery),
    responses((status = 200, description = "A page.", body = Items)),
    security(("person" = [])),
)]
async fn list(
    person: Person,
    Page { limit, before }: Page,
    ListQuery { unread }: ListQuery,
    State(inbox): State<InboxState>,
) -> Result<Answer<Items>, ApiError> {
    let inbox = inbox.get()?;
    let wanted = Wanted { person: person.id, before, limit, unread };
    let listed = inbox.list(wanted).await.map_err(|error| away(&error))?;
    let next_cursor = listed.entries.last().filter(|_| listed.more).map(|entry| entry.seq.to_string());
    let (templates, language) = (inbox.templates(), language());
    let item = |entry| Item::new(entry, |notice| templates.message(notice, language));
    let items = listed.entries.into_iter().map(item).collect();
    Ok(Answer(Items { items, next_cursor, unread: listed.standing.unread }))
}

/// Mark a notification as read
///
/// By its `id`, or by its `eventId`. Reading it again changes nothing.
#[utoipa::path(
    patch,
    path = "/api/notifications/{id}/read",
    params(EntryPath),
    responses((status = 200, description = "It is read.", body = ReadAnswer)),
    security(("person" = [])),
)]
async fn read(
    person: Person,
    EntryPath { id }: EntryPath,
    State(inbox): State<InboxState>,
) -> Result<Answer<ReadAnswer>, ApiError> {
    let read =
        inbox.get()?.mark_read(&person.id, EntryId::of(id.clone())).await.map_err(|error| away(&error))?;
    let read = read.ok_or_else(ApiError::not_found)?;
    Ok(Answer(ReadAnswer::new(id, read.read_at)))
}

/// Mark a notification as read (rooms)
///
/// The same as `PATCH /api/notifications/{id}/read`.
#[utoipa::path(
    patch,
    path = "/api/v1/notifications/{id}/read",
    params(EntryPath),
    responses((status = 200, description = "It is read.", body = ReadAnswer)),
    security(("person" = [])),
)]
async fn read_v1(
    person: Person,
    entry: EntryPath,
    inbox: State<InboxState>,
) -> Result<Answer<ReadAnswer>, ApiError> {
    read(person, entry, inbox).await
}

/// Mark all notifications as read
#[utoipa::path(
    post,
    path = "/api/notifications/read-all",
    responses((status = 200, description = "They are read. What came meanwhile is not.", body = Unread)),
    security(("person" = [])),
)]
async fn read_all(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Unread>, ApiError> {
    let unread = inbox.get()?.mark_all_read(&person.id).await.map_err(|error| away(&error))?;
    Ok(Answer(Unread { unread }))
}

/// Delete a notification
#[utoipa::path(
    delete,
    path = "/api/notifications/{id}",
    params(EntryPath),
    responses((status = 200, description = "It is gone.", body = Deleted)),
    security(("person" = [])),
)]
async fn delete(
    person: Person,
    EntryPath { id: notification_id }: EntryPath,
    State(inbox): State<InboxState>,
) -> Result<Answer<Deleted>, ApiError> {
    let entry = EntryId::of(notification_id.clone());
    let gone = inbox.get()?.delete(&person.id, entry).await.map_err(|error| away(&error))?;
    if gone { Ok(Answer(Deleted { notification_id })) } else { Err(ApiError::not_found()) }
}

/// What a person wants to hear of
#[utoipa::path(
    get,
    path = "/api/notifications/settings",
    responses((status = 200, description = "The settings in force.", body = Settings)),
    security(("person" = [])),
)]
async fn settings(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Settings>, ApiError> {
    inbox.get()?.settings(&person.id).await.map(Answer).map_err(|error| away(&error))
}

/// Change what a person wants to hear of
///
/// Changes what the body names, and nothing else. `quietHours: null` ends them, and a type that is null is not named any more.
#[utoipa::path(
    put,
    path = "/api/notifications/settings",
    request_body = Settings,
    responses((status = 200, description = "The settings in force.", body = Settings)),
    security(("person" = [])),
)]
async fn change_settings(
    person: Person,
    State(inbox): State<InboxState>,
    Small(body): Small,
) -> Result<Answer<Settings>, ApiError> {
    let change = Change::read(&body.fields()?)?;
    let changed = inbox.get()?.change_settings(&person.id, change).await;
    changed.map(Answer).map_err(|error| match error {
        SettingsError::Invalid(invalid) => invalid.into(),
        SettingsError::Records(error) => away(&error),
    })
}

/// Count unread notifications
#[utoipa::path(
    get,
    path = "/api/v1/notifications/unread",
    responses((status = 200, description = "How many there are.", body = Count)),
    security(("person" = [])),
)]
async fn unread(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Count>, ApiError> {
    let standing = inbox.get()?.standing(&person.id).await.map_err(|error| away(&error))?;
    Ok(Answer(Count { count: standing.unread }))
}

/// Tell people of something
///
/// Durable when it is answered. The same `eventId` again reaches nobody twice, and those who were not named before.
#[utoipa::path(
    post,
    path = "/api/v1/members/notify",
    request_body = NotifyBody,
    responses(
        (status = 202, description = "It is in everybody's inbox.", body = Notified),
        (status = 409, description = "The `eventId` was used for other content (NOTIF4091)."),
    ),
    security(("service" = [])),
)]
async fn notify(
    _: Service,
    State(inbox): State<InboxState>,
    Bulk(body): Bulk,
) -> Result<Accepted<Notified>, ApiError> {
    let NotifyBody { event_id, kind, ref_id, actor_id, payload, target_ids: targets } = body.read()?;
    let payload = payload.or_else(|| Object::stored("{}")).ok_or_else(ApiError::unexpected)?;
    let notice = Notice { event: event_id.clone(), kind, reference: ref_id, actor: actor_id, payload };
    match inbox.get()?.notify(notice, &targets).await {
        Ok(_) => Ok(Accepted(Notified { event_id, targets: targets.iter().collect::<BTreeSet<_>>().len() })),
        Err(NotifyError::Records(error)) => Err(away(&error)),
        Err(NotifyError::Conflict) => Err(ApiError::of(
            Code::Notif4091,
            "eventId: 같은 ID가 다른 내용으로 이미 사용되었습니다.",
            "eventId: it was already used for other content.",
        )),
    }
}
