//! The inbox over HTTP: requests in, answers out. Nothing is decided here.
//!
//! `/api/notifications` and `/api/v1/notifications` are two doors to the same inbox, with the same ids and one count.

mod documents;
mod requests;

use std::collections::BTreeSet;

use axum::extract::{FromRef, State};
use bongsu_http::answer::{Accepted, Answer};
use bongsu_http::frame::language;
use bongsu_http::{ApiError, Bulk, Fields, Identity, Person, Query, Service, Small};
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_sql::Error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{Count, Deleted, Item, Items, Notified, ReadAnswer, Unread};
use self::requests::{EntryPath, read_notify, read_wanted};
use crate::settings::{Change, Settings, SettingsError};
use crate::{Inbox, NotifyError};

/// Nothing when nothing is recorded.
#[derive(Clone)]
struct Inboxes(Option<Inbox>);

impl Inboxes {
    fn get(&self) -> Result<&Inbox, ApiError> {
        self.0.as_ref().ok_or_else(ApiError::no_records)
    }
}

#[derive(Clone)]
struct InboxState {
    inbox: Inboxes,
    identity: Identity,
}

impl FromRef<InboxState> for Identity {
    fn from_ref(state: &InboxState) -> Self {
        state.identity.clone()
    }
}

impl FromRef<InboxState> for Inboxes {
    fn from_ref(state: &InboxState) -> Self {
        state.inbox.clone()
    }
}

/// The routes of this part, with their documents. Without an inbox they say that there is none.
pub fn router(inbox: Option<Inbox>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read))
        .routes(routes!(read_all))
        .routes(routes!(delete))
        .routes(routes!(settings, change_settings))
        .routes(routes!(unread))
        .routes(routes!(read_v1))
        .routes(routes!(notify))
        .with_state(InboxState { inbox: Inboxes(inbox), identity })
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
    tag = "inbox",
    params(documents::ListParams),
    responses((status = 200, description = "A page.", body = documents::ItemsEnvelope)),
    security(("person" = [])),
)]
async fn list(person: Person, query: Query, State(inbox): State<Inboxes>) -> Result<Answer<Items>, ApiError> {
    let inbox = inbox.get()?;
    let wanted = read_wanted(&query, person.id)?;
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
    tag = "inbox",
    params(documents::EntryParam),
    responses((status = 200, description = "It is read.", body = documents::ReadEnvelope)),
    security(("person" = [])),
)]
async fn read(
    person: Person,
    EntryPath(entry, given): EntryPath,
    State(inbox): State<Inboxes>,
) -> Result<Answer<ReadAnswer>, ApiError> {
    let read = inbox.get()?.mark_read(&person.id, entry).await.map_err(|error| away(&error))?;
    let read = read.ok_or_else(ApiError::not_found)?;
    Ok(Answer(ReadAnswer::new(given, read.read_at)))
}

/// Mark a notification as read (rooms)
///
/// The same as `PATCH /api/notifications/{id}/read`.
#[utoipa::path(
    patch,
    path = "/api/v1/notifications/{id}/read",
    tag = "inbox",
    params(documents::EntryParam),
    responses((status = 200, description = "It is read.", body = documents::ReadEnvelope)),
    security(("person" = [])),
)]
async fn read_v1(
    person: Person,
    entry: EntryPath,
    inbox: State<Inboxes>,
) -> Result<Answer<ReadAnswer>, ApiError> {
    read(person, entry, inbox).await
}

/// Mark all notifications as read
#[utoipa::path(
    post,
    path = "/api/notifications/read-all",
    tag = "inbox",
    responses((status = 200, description = "They are read. What came meanwhile is not.", body = documents::UnreadEnvelope)),
    security(("person" = [])),
)]
async fn read_all(person: Person, State(inbox): State<Inboxes>) -> Result<Answer<Unread>, ApiError> {
    let unread = inbox.get()?.mark_all_read(&person.id).await.map_err(|error| away(&error))?;
    Ok(Answer(Unread { unread }))
}

/// Delete a notification
#[utoipa::path(
    delete,
    path = "/api/notifications/{id}",
    tag = "inbox",
    params(documents::EntryParam),
    responses((status = 200, description = "It is gone.", body = documents::DeletedEnvelope)),
    security(("person" = [])),
)]
async fn delete(
    person: Person,
    EntryPath(entry, notification_id): EntryPath,
    State(inbox): State<Inboxes>,
) -> Result<Answer<Deleted>, ApiError> {
    let gone = inbox.get()?.delete(&person.id, entry).await.map_err(|error| away(&error))?;
    if gone { Ok(Answer(Deleted { notification_id })) } else { Err(ApiError::not_found()) }
}

/// What a person wants to hear of
#[utoipa::path(
    get,
    path = "/api/notifications/settings",
    tag = "inbox",
    responses((status = 200, description = "The settings in force.", body = documents::SettingsEnvelope)),
    security(("person" = [])),
)]
async fn settings(person: Person, State(inbox): State<Inboxes>) -> Result<Answer<Settings>, ApiError> {
    inbox.get()?.settings(&person.id).await.map(Answer).map_err(|error| away(&error))
}

/// Change what a person wants to hear of
///
/// Changes what the body names, and nothing else. `quietHours: null` ends them, and a type that is null is not named any more.
#[utoipa::path(
    put,
    path = "/api/notifications/settings",
    tag = "inbox",
    request_body = Settings,
    responses((status = 200, description = "The settings in force.", body = documents::SettingsEnvelope)),
    security(("person" = [])),
)]
async fn change_settings(
    person: Person,
    State(inbox): State<Inboxes>,
    Small(body): Small,
) -> Result<Answer<Settings>, ApiError> {
    let change = Change::read(&Fields::of_body(body.as_str())?)?;
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
    tag = "inbox",
    responses((status = 200, description = "How many there are.", body = documents::CountEnvelope)),
    security(("person" = [])),
)]
async fn unread(person: Person, State(inbox): State<Inboxes>) -> Result<Answer<Count>, ApiError> {
    let standing = inbox.get()?.standing(&person.id).await.map_err(|error| away(&error))?;
    Ok(Answer(Count { count: standing.unread }))
}

/// Tell people of something
///
/// Durable when it is answered. The same `eventId` again reaches nobody twice, and those who were not named before.
#[utoipa::path(
    post,
    path = "/api/v1/members/notify",
    tag = "inbox",
    request_body = documents::NotifyBody,
    responses(
        (status = 202, description = "It is in everybody's inbox.", body = documents::NotifiedEnvelope),
        (status = 409, description = "The `eventId` was used for other content (NOTIF4091)."),
    ),
    security(("service" = [])),
)]
async fn notify(
    _: Service,
    State(inbox): State<Inboxes>,
    Bulk(body): Bulk,
) -> Result<Accepted<Notified>, ApiError> {
    let (notice, targets) = read_notify(&Fields::of_body(body.as_str())?)?;
    let event_id = notice.event.clone();
    match inbox.get()?.notify(notice, &targets).await {
        Ok(_) => Ok(Accepted(Notified { event_id, targets: targets.iter().collect::<BTreeSet<_>>().len() })),
        Err(NotifyError::Records(error)) => Err(away(&error)),
        Err(NotifyError::Conflict) => Err(ApiError::new(
            Code::Notif4091,
            Text::new(
                "eventId: 같은 ID가 다른 내용으로 이미 사용되었습니다.",
                "eventId: it was already used for other content.",
            ),
        )),
    }
}
