//! The HTTP routes of the inbox. The handlers read requests and call [`Inbox`], which holds the logic.
//!
//! `/api/notifications` and `/api/v1/notifications` serve the same inbox, with the same ids and unread count.

mod documents;
mod requests;

use std::collections::BTreeSet;

use axum::extract::State;
use bongsu_http::answer::{AcceptedAnswer, Answer};
use bongsu_http::openapi::tagged;
use bongsu_http::request_scope::language;
use bongsu_http::{ApiError, BulkBody, Identity, Page, Person, RouteState, Service, SmallBody};
use bongsu_kernel::Code;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Text;
use bongsu_sql::Error;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{AcceptedNotification, Count, DeletedNotification, Item, Items, ReadAnswer, Unread};
use self::requests::{EntryPath, ListQuery, NotifyBody};
use crate::list::ListFilter;
use crate::settings::{Settings, SettingsChange, SettingsError};
use crate::{EntryId, Inbox, Notification, NotifyError};

/// None when RECORDS is off.
type InboxState = RouteState<Option<Inbox>>;

/// The routes of this part, with their OpenAPI documentation. Without an inbox every route returns an error.
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

/// The answer to a request for which the records failed.
#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn records_error(error: Error) -> ApiError {
    if let Error::Failed(_) = error {
        tracing::error!(%error, "failed to run a query of the inbox; answering COMMON500");
        return ApiError::unexpected();
    }
    // At level debug, because this happens for every request; the records log the outage once.
    tracing::debug!(%error, "the database of the inbox is unavailable; answering COMMON503");
    let text = Text::new("지금은 알림함을 사용할 수 없습니다.", "The inbox is not available right now.");
    ApiError::new(Code::Common503, text)
}

/// List notifications
///
/// Get a page of the caller's notifications, newest first. Pass `nextCursor` as `cursor` to get the next
/// page.
#[utoipa::path(
    get,
    path = "/api/notifications",
    params(Page, ListQuery),
    responses((status = 200, description = "A page of notifications.", body = Items)),
    security(("person" = [])),
)]
async fn list(
    person: Person,
    Page { limit, before }: Page,
    ListQuery { unread }: ListQuery,
    State(inbox): State<InboxState>,
) -> Result<Answer<Items>, ApiError> {
    let inbox = inbox.get()?;
    let filter = ListFilter { person: person.id, before, limit, is_unread_only: unread };
    let page = inbox.list(filter).await.map_err(records_error)?;
    let next_cursor = page.entries.last().filter(|_| page.has_more).map(|entry| entry.seq.to_string());
    let (templates, language) = (inbox.templates(), language());
    let item = |entry| Item::new(entry, |notification| templates.render(notification, language));
    let items = page.entries.into_iter().map(item).collect();
    Ok(Answer(Items { items, next_cursor, unread: page.state.unread }))
}

/// Mark a notification as read
///
/// Name the notification by its `id` or its `eventId`. A repeated request changes nothing.
#[utoipa::path(
    patch,
    path = "/api/notifications/{id}/read",
    params(EntryPath),
    responses((status = 200, description = "The notification is marked as read.", body = ReadAnswer)),
    security(("person" = [])),
)]
async fn read(
    person: Person,
    EntryPath { id }: EntryPath,
    State(inbox): State<InboxState>,
) -> Result<Answer<ReadAnswer>, ApiError> {
    let read =
        inbox.get()?.mark_read(&person.id, EntryId::from_request(id.clone())).await.map_err(records_error)?;
    let read = read.ok_or_else(ApiError::not_found)?;
    Ok(Answer(ReadAnswer::new(id, read.read_at)))
}

/// Mark a notification as read (v1)
///
/// Does the same as `PATCH /api/notifications/{id}/read`.
#[utoipa::path(
    patch,
    path = "/api/v1/notifications/{id}/read",
    params(EntryPath),
    responses((status = 200, description = "The notification is marked as read.", body = ReadAnswer)),
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
    responses((status = 200, description = "The unread count. Notifications that arrive during the request stay unread.", body = Unread)),
    security(("person" = [])),
)]
async fn read_all(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Unread>, ApiError> {
    let unread = inbox.get()?.mark_all_read(&person.id).await.map_err(records_error)?;
    Ok(Answer(Unread { unread }))
}

/// Delete a notification
#[utoipa::path(
    delete,
    path = "/api/notifications/{id}",
    params(EntryPath),
    responses((status = 200, description = "The notification is deleted.", body = DeletedNotification)),
    security(("person" = [])),
)]
async fn delete(
    person: Person,
    EntryPath { id: notification_id }: EntryPath,
    State(inbox): State<InboxState>,
) -> Result<Answer<DeletedNotification>, ApiError> {
    let entry = EntryId::from_request(notification_id.clone());
    let is_deleted = inbox.get()?.delete(&person.id, entry).await.map_err(records_error)?;
    if is_deleted { Ok(Answer(DeletedNotification { notification_id })) } else { Err(ApiError::not_found()) }
}

/// Get the notification settings
#[utoipa::path(
    get,
    path = "/api/notifications/settings",
    responses((status = 200, description = "The settings that are in force now.", body = Settings)),
    security(("person" = [])),
)]
async fn settings(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Settings>, ApiError> {
    inbox.get()?.settings(&person.id).await.map(Answer).map_err(records_error)
}

/// Change the notification settings
///
/// Change only the fields that the body contains. `quietHours: null` removes the quiet hours, and a type with
/// the value null is removed from `types`.
#[utoipa::path(
    put,
    path = "/api/notifications/settings",
    request_body = Settings,
    responses((status = 200, description = "The settings that are in force now.", body = Settings)),
    security(("person" = [])),
)]
async fn change_settings(
    person: Person,
    State(inbox): State<InboxState>,
    SmallBody(body): SmallBody,
) -> Result<Answer<Settings>, ApiError> {
    let change = SettingsChange::read(&body.fields()?)?;
    let changed = inbox.get()?.change_settings(&person.id, change).await;
    changed.map(Answer).map_err(|error| match error {
        SettingsError::Invalid(invalid) => invalid.into(),
        SettingsError::Records(error) => records_error(error),
    })
}

/// Count unread notifications
#[utoipa::path(
    get,
    path = "/api/v1/notifications/unread",
    responses((status = 200, description = "The number of unread notifications.", body = Count)),
    security(("person" = [])),
)]
async fn unread(person: Person, State(inbox): State<InboxState>) -> Result<Answer<Count>, ApiError> {
    let state = inbox.get()?.unread_state(&person.id).await.map_err(records_error)?;
    Ok(Answer(Count { count: state.unread }))
}

/// Notify people
///
/// Store a notification in the inbox of every target. It is durable when the response arrives. A repeated
/// request with the same `eventId` notifies only targets that were not notified before.
#[utoipa::path(
    post,
    path = "/api/v1/members/notify",
    request_body = NotifyBody,
    responses(
        (status = 202, description = "The notification is in the inbox of every target.", body = AcceptedNotification),
        (status = 409, description = "The `eventId` was used for a notification with other content (NOTIF4091)."),
    ),
    security(("service" = [])),
)]
async fn notify(
    _: Service,
    State(inbox): State<InboxState>,
    BulkBody(body): BulkBody,
) -> Result<AcceptedAnswer<AcceptedNotification>, ApiError> {
    let NotifyBody { event_id, kind, ref_id, actor_id, payload, target_ids: targets } = body.read()?;
    let payload = payload.or_else(|| Object::from_stored("{}")).ok_or_else(ApiError::unexpected)?;
    let notification =
        Notification { event: event_id.clone(), kind, reference: ref_id, actor: actor_id, payload };
    match inbox.get()?.notify(notification, &targets).await {
        Ok(_) => Ok(AcceptedAnswer(AcceptedNotification {
            event_id,
            targets: targets.iter().collect::<BTreeSet<_>>().len(),
        })),
        Err(NotifyError::Records(error)) => Err(records_error(error)),
        Err(NotifyError::Conflict) => Err(ApiError::of(
            Code::Notif4091,
            "eventId: 같은 ID가 다른 내용으로 이미 사용되었습니다.",
            "eventId: this id was already used for other content.",
        )),
    }
}
