//! The agenda of looks at rooms, without a store.

use super::*;

const LIFE: Duration = Duration::from_secs(60);
const RENEWAL: Option<Duration> = Some(Duration::from_secs(20));
const TOLD: Result<Told, Duration> = Ok(Told { look_within: None, version: None, count: 0 });

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

/// A look at the only room that is due, as its work and what to end it with.
fn look(here: &Here, at: Instant) -> Option<Work> {
    let (room, _) = here.take_due(at)?;
    Some(here.take_work(&room, RENEWAL))
}

fn end(here: &Here, work: Work, outcome: Result<Told, Duration>) -> bool {
    here.done(&id("room"), work, outcome, || {})
}

#[test]
fn what_happened_between_two_looks_is_told_as_it_is_now() {
    let (here, room) = (Here::new(LIFE), id("room"));
    for person in ["comes", "comes", "passes"] {
        here.enter(&room, Some(&id(person)));
    }
    here.leave(&room, Some(&id("passes")));
    here.leave(&room, Some(&id("comes")));
    let work = look(&here, Instant::now()).unwrap();
    assert_eq!((&work.here, &work.gone), (&vec![id("comes")], &vec![id("passes")]));
    assert!(look(&here, Instant::now()).is_none(), "one look at a time");
    here.leave(&room, Some(&id("comes")));
    assert!(!end(&here, work, TOLD));
    let work = look(&here, Instant::now()).unwrap();
    assert_eq!((work.here.len(), &work.gone), (0, &vec![id("comes")]));
    assert!(end(&here, work, TOLD), "nobody is left");
    assert!(here.next_due().is_none());
}

#[test]
fn what_could_not_be_told_is_told_after_a_pause() {
    let (here, room) = (Here::new(LIFE), id("room"));
    let mut told = here.enter(&room, Some(&id("stays"))).unwrap();
    here.enter(&room, Some(&id("leaves")));
    let work = look(&here, Instant::now()).unwrap();
    here.leave(&room, Some(&id("leaves")));
    assert!(!end(&here, work, Err(Duration::from_secs(1))));
    assert!(told.try_recv().is_err(), "who waits is let go without");
    assert!(look(&here, Instant::now()).is_none());
    let work = look(&here, Instant::now() + Duration::from_secs(2)).unwrap();
    assert_eq!((&work.here, &work.gone), (&vec![id("stays")], &vec![id("leaves")]));
}

#[test]
fn rooms_that_everybody_left_take_no_memory() {
    let here = Here::new(LIFE);
    let rooms: Vec<Id> = (0..20_000).map(|room| id(&format!("room-{room}"))).collect();
    let look_at_all = || {
        while let Some((room, _)) = here.take_due(Instant::now()) {
            let work = here.take_work(&room, RENEWAL);
            here.done(&room, work, TOLD, || {});
        }
    };
    rooms.iter().for_each(|room| _ = here.enter(room, Some(&id("passes"))));
    look_at_all();
    assert_eq!(here.book().rooms.len(), rooms.len());
    rooms.iter().for_each(|room| here.leave(room, Some(&id("passes"))));
    look_at_all();
    let book = here.book();
    assert_eq!((book.rooms.len(), book.agenda.len()), (0, 0));
    assert!(book.rooms.capacity() < 4_096, "{}", book.rooms.capacity());
}

#[test]
fn who_left_longer_ago_than_a_sign_lives_is_not_told_any_more() {
    let (here, room) = (Here::new(Duration::ZERO), id("room"));
    here.enter(&room, Some(&id("leaves")));
    here.leave(&room, Some(&id("leaves")));
    let work = look(&here, Instant::now()).unwrap();
    assert!(end(&here, work, Err(Duration::ZERO)), "nothing is left to be told");
}

#[test]
fn a_round_comes_to_everybody_once_in_steps() {
    let (here, room, renewal) = (Here::new(LIFE), id("room"), RENEWAL.unwrap());
    let people: Vec<Id> = (0..3 * BATCH - 1).map(|person| id(&person.to_string())).collect();
    people.iter().for_each(|person| _ = here.enter(&room, Some(person)));
    for _ in 0..3 {
        let work = look(&here, Instant::now()).unwrap();
        assert!(work.here.len() <= BATCH);
        end(&here, work, TOLD);
    }
    let begins = here.next_due().unwrap() - Instant::now();
    assert!(begins > renewal / 2 - Duration::from_secs(5) && begins <= renewal, "{begins:?}");
    here.renew_now(&room);
    let (mut renewed, mut looks) = (Vec::new(), 0);
    while let Some(work) = look(&here, Instant::now()) {
        renewed.extend(work.here.clone());
        looks += 1;
        end(&here, work, TOLD);
    }
    renewed.sort();
    let mut people = people;
    people.sort();
    assert_eq!((renewed, looks), (people, 3), "in a hurry, all at once");
    let next = here.next_due().unwrap() - Instant::now();
    assert!(next > renewal - Duration::from_secs(5) && next <= renewal, "{next:?}");
}

#[test]
fn a_room_with_an_observer_only_is_looked_at_and_has_nobody_to_tell_of() {
    let (here, room) = (Here::new(LIFE), id("room"));
    let mut told = here.enter(&room, None).unwrap();
    let work = look(&here, Instant::now()).unwrap();
    assert!(work.here.is_empty() && work.gone.is_empty());
    assert!(!end(&here, work, TOLD), "the observer is there");
    assert!(told.try_recv().is_ok() && here.has(&room));
    assert!(here.enter(&room, None).is_none(), "the room is known by now");
    here.leave(&room, None);
    assert!(look(&here, Instant::now()).is_none(), "one is left");
    here.leave(&room, None);
    let work = look(&here, Instant::now()).unwrap();
    assert!(end(&here, work, TOLD) && !here.has(&room), "nobody is left");
}

#[test]
fn a_second_stream_waits_for_the_look_that_tells_of_the_first() {
    let (here, room, anna) = (Here::new(LIFE), id("room"), id("anna"));
    here.enter(&room, Some(&anna));
    let work = look(&here, Instant::now()).unwrap();
    let mut second = here.enter(&room, Some(&anna)).expect("the store has not answered yet");
    end(&here, work, TOLD);
    assert!(second.try_recv().is_err());
    let work = look(&here, Instant::now()).unwrap();
    end(&here, work, TOLD);
    assert!(second.try_recv().is_ok());
    assert!(here.enter(&room, Some(&anna)).is_none(), "the store knows");
}

#[test]
fn a_loop_that_failed_goes_on_with_everybody() {
    let (here, room) = (Here::new(LIFE), id("room"));
    here.enter(&room, Some(&id("somebody")));
    let lost = look(&here, Instant::now()).unwrap();
    assert_eq!(lost.here.len(), 1);
    here.begin_again();
    assert_eq!(look(&here, Instant::now()).unwrap().here, [id("somebody")]);
}
