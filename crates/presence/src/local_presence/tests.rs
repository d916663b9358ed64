//! The schedule and the content of reports, without a store.

use super::*;

const LEASE_TTL: Duration = Duration::from_secs(60);
const RENEWAL_INTERVAL: Option<Duration> = Some(Duration::from_secs(20));
const SUCCESS: Result<ReportOutcome, Duration> =
    Ok(ReportOutcome { next_report_within: None, version: None, count: 0 });

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

/// Begins the report of the only room, if it is due at this time.
fn begin(local: &LocalPresence, at: Instant) -> Option<Report> {
    let (room, _) = local.begin_due_report(at)?;
    Some(local.take_report(&room, RENEWAL_INTERVAL))
}

fn finish(local: &LocalPresence, report: Report, outcome: Result<ReportOutcome, Duration>) -> bool {
    local.finish_report(&id("room"), report, outcome, || {})
}

#[test]
fn a_report_contains_the_state_at_its_beginning() {
    let (local, room) = (LocalPresence::new(LEASE_TTL), id("room"));
    for person in ["stays", "stays", "passes"] {
        local.add_stream(&room, Some(&id(person)));
    }
    local.remove_stream(&room, Some(&id("passes")));
    local.remove_stream(&room, Some(&id("stays")));
    let report = begin(&local, Instant::now()).unwrap();
    assert_eq!((&report.present, &report.left), (&vec![id("stays")], &vec![id("passes")]));
    assert!(begin(&local, Instant::now()).is_none(), "one report at a time");
    local.remove_stream(&room, Some(&id("stays")));
    assert!(!finish(&local, report, SUCCESS));
    let report = begin(&local, Instant::now()).unwrap();
    assert_eq!((report.present.len(), &report.left), (0, &vec![id("stays")]));
    assert!(finish(&local, report, SUCCESS), "the room is empty");
    assert!(local.next_due().is_none());
}

#[test]
fn a_failed_report_is_repeated_after_the_delay() {
    let (local, room) = (LocalPresence::new(LEASE_TTL), id("room"));
    let mut outcome = local.add_stream(&room, Some(&id("stays"))).unwrap();
    local.add_stream(&room, Some(&id("leaves")));
    let report = begin(&local, Instant::now()).unwrap();
    local.remove_stream(&room, Some(&id("leaves")));
    assert!(!finish(&local, report, Err(Duration::from_secs(1))));
    assert!(outcome.try_recv().is_err(), "the waiting stream gets no outcome");
    assert!(begin(&local, Instant::now()).is_none());
    let report = begin(&local, Instant::now() + Duration::from_secs(2)).unwrap();
    assert_eq!((&report.present, &report.left), (&vec![id("stays")], &vec![id("leaves")]));
}

#[test]
fn empty_rooms_take_no_memory() {
    let local = LocalPresence::new(LEASE_TTL);
    let rooms: Vec<Id> = (0..20_000).map(|room| id(&format!("room-{room}"))).collect();
    let report_all = || {
        while let Some((room, _)) = local.begin_due_report(Instant::now()) {
            let report = local.take_report(&room, RENEWAL_INTERVAL);
            local.finish_report(&room, report, SUCCESS, || {});
        }
    };
    rooms.iter().for_each(|room| _ = local.add_stream(room, Some(&id("passes"))));
    report_all();
    assert_eq!(lock(&local.state).rooms.len(), rooms.len());
    rooms.iter().for_each(|room| local.remove_stream(room, Some(&id("passes"))));
    report_all();
    let state = lock(&local.state);
    assert_eq!((state.rooms.len(), state.schedule.len()), (0, 0));
    assert!(state.rooms.capacity() < 4_096, "{}", state.rooms.capacity());
}

#[test]
fn people_whose_lease_has_expired_are_not_reported_as_left() {
    let (local, room) = (LocalPresence::new(Duration::ZERO), id("room"));
    local.add_stream(&room, Some(&id("leaves")));
    local.remove_stream(&room, Some(&id("leaves")));
    let report = begin(&local, Instant::now()).unwrap();
    assert!(finish(&local, report, Err(Duration::ZERO)), "there is no one left to report");
}

#[test]
fn a_renewal_round_reports_everybody_once_in_steps() {
    let (local, room, interval) = (LocalPresence::new(LEASE_TTL), id("room"), RENEWAL_INTERVAL.unwrap());
    let people: Vec<Id> = (0..3 * MAX_PEOPLE_PER_REPORT - 1).map(|person| id(&person.to_string())).collect();
    people.iter().for_each(|person| _ = local.add_stream(&room, Some(person)));
    for _ in 0..3 {
        let report = begin(&local, Instant::now()).unwrap();
        assert!(report.present.len() <= MAX_PEOPLE_PER_REPORT);
        finish(&local, report, SUCCESS);
    }
    let begins = local.next_due().unwrap() - Instant::now();
    assert!(begins > interval / 2 - Duration::from_secs(5) && begins <= interval, "{begins:?}");
    local.renew_now(&room);
    let (mut renewed, mut reports) = (Vec::new(), 0);
    while let Some(report) = begin(&local, Instant::now()) {
        renewed.extend(report.present.clone());
        reports += 1;
        finish(&local, report, SUCCESS);
    }
    renewed.sort();
    let mut people = people;
    people.sort();
    assert_eq!((renewed, reports), (people, 3), "an immediate round has no steps");
    let next = local.next_due().unwrap() - Instant::now();
    assert!(next > interval - Duration::from_secs(5) && next <= interval, "{next:?}");
}

#[test]
fn a_room_with_only_an_observer_is_reported_without_people() {
    let (local, room) = (LocalPresence::new(LEASE_TTL), id("room"));
    let mut outcome = local.add_stream(&room, None).unwrap();
    let report = begin(&local, Instant::now()).unwrap();
    assert!(report.present.is_empty() && report.left.is_empty());
    assert!(!finish(&local, report, SUCCESS), "the observer keeps the room");
    assert!(outcome.try_recv().is_ok() && local.has_streams(&room));
    assert!(local.add_stream(&room, None).is_none(), "the room is subscribed to");
    local.remove_stream(&room, None);
    assert!(begin(&local, Instant::now()).is_none(), "one observer remains");
    local.remove_stream(&room, None);
    let report = begin(&local, Instant::now()).unwrap();
    assert!(finish(&local, report, SUCCESS) && !local.has_streams(&room), "the room is empty");
}

#[test]
fn a_second_stream_waits_for_the_report_that_follows_the_one_in_flight() {
    let (local, room, anna) = (LocalPresence::new(LEASE_TTL), id("room"), id("anna"));
    local.add_stream(&room, Some(&anna));
    let report = begin(&local, Instant::now()).unwrap();
    let mut second = local.add_stream(&room, Some(&anna)).expect("the store has not answered yet");
    finish(&local, report, SUCCESS);
    assert!(second.try_recv().is_err());
    let report = begin(&local, Instant::now()).unwrap();
    finish(&local, report, SUCCESS);
    assert!(second.try_recv().is_ok());
    assert!(local.add_stream(&room, Some(&anna)).is_none(), "the store has been told");
}

#[test]
fn everybody_is_reported_again_after_the_report_loop_failed() {
    let (local, room) = (LocalPresence::new(LEASE_TTL), id("room"));
    local.add_stream(&room, Some(&id("somebody")));
    let lost = begin(&local, Instant::now()).unwrap();
    assert_eq!(lost.present.len(), 1);
    local.recover();
    assert_eq!(begin(&local, Instant::now()).unwrap().present, [id("somebody")]);
}
