//! Finds one event of a subject in Redis, and its follow-up record, for `explain`.

use bongsu_kernel::StreamId;
use bongsu_redis::Redis;

use super::{follow_ups, read};
use crate::SubjectName;
use crate::log::{EventTrace, LogError};

pub async fn trace_event(redis: &Redis, subject: &SubjectName, id: StreamId) -> Result<EventTrace, LogError> {
    let event = read::event(redis, subject, id).await?;
    let follow_up = follow_ups::find(redis, subject, id).await?;
    Ok(EventTrace { event, follow_up })
}
