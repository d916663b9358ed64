//! Looking at Redis from outside for one event of a subject: whether the log still has it, and whether its follow-up record
//! still waits.

use bongsu_kernel::StreamId;
use bongsu_redis::Redis;

use super::{follow_ups, read};
use crate::SubjectName;
use crate::log::{LogError, Traces};

pub async fn look(redis: &Redis, subject: &SubjectName, id: StreamId) -> Result<Traces, LogError> {
    let event = read::event(redis, subject, id).await?;
    let waiting = follow_ups::find(redis, subject, id).await?;
    Ok(Traces { event, waiting })
}
