//! What a hub holds, as it knows it itself, and of whom Redis has to be told.

use std::collections::{HashMap, HashSet};

use bongsu_kernel::{Close, Id, Millis};
use bongsu_live::Ender;

#[derive(Default)]
pub(super) struct Held {
    people: HashMap<Id, Vec<Connection>>,
    /// People of whom one has gone. Each is there once, however many of theirs have.
    untold: HashSet<Id>,
    last_word: u64,
}

pub(super) struct Connection {
    id: String,
    ender: Ender,
    /// Since when it is here, as Redis wrote it. It has it from the start, and keeps it whatever Redis forgets.
    time: String,
    /// By Redis's clock, when whoever wants to come gives up; nothing once it is counted.
    until: Option<Millis>,
}

impl Connection {
    pub(super) fn new(id: &str, ender: Ender, time: String, until: Millis) -> Self {
        Self { id: id.to_owned(), ender, time, until: Some(until) }
    }
}

/// All that this hub holds of a person. Words are numbered, so that an old one that comes late changes nothing.
pub(super) struct Word {
    pub(super) number: u64,
    /// Each with its time.
    pub(super) connections: Vec<(String, String)>,
    /// By then the first of those who are coming gives up; 0 when nobody is.
    pub(super) until: Millis,
}

impl Held {
    pub(super) fn people(&self) -> Vec<Id> {
        self.people.keys().cloned().collect()
    }

    pub(super) fn holds(&self, person: &Id) -> bool {
        self.people.contains_key(person)
    }

    pub(super) fn word(&mut self, person: &Id) -> Word {
        self.last_word += 1;
        let own = self.people.get(person).map(Vec::as_slice).unwrap_or_default();
        Word {
            number: self.last_word,
            connections: own.iter().map(|one| (one.id.clone(), one.time.clone())).collect(),
            until: own.iter().filter_map(|one| one.until).min().unwrap_or_default(),
        }
    }

    /// Here before it is counted: who is replaced at once has to be found.
    pub(super) fn comes(&mut self, person: &Id, one: Connection) -> Word {
        self.people.entry(person.clone()).or_default().push(one);
        self.word(person)
    }

    pub(super) fn is_counted(&mut self, person: &Id, id: &str) {
        let own = self.people.get_mut(person).map(Vec::as_mut_slice).unwrap_or_default();
        if let Some(one) = own.iter_mut().find(|one| one.id == id) {
            one.until = None;
        }
    }

    /// A newer one has its place: it ends, and this hub says no more that it holds it.
    pub(super) fn replaced(&mut self, person: &Id, id: &str) {
        if let Some(one) = self.take(person, id) {
            one.ender.end(Close::Replaced);
        }
    }

    pub(super) fn goes(&mut self, person: &Id, id: &str) {
        self.take(person, id);
        self.tell_of(person);
    }

    pub(super) fn tell_of(&mut self, person: &Id) {
        self.untold.insert(person.clone());
    }

    pub(super) fn untold(&self) -> usize {
        self.untold.len()
    }

    /// Some of whom Redis has to be told; who cannot be told of is put back.
    pub(super) fn take_untold(&mut self, most: usize) -> Vec<Id> {
        let some: Vec<Id> = self.untold.iter().take(most).cloned().collect();
        for person in &some {
            self.untold.remove(person);
        }
        if self.untold.is_empty() {
            // After an outage it was large.
            self.untold.shrink_to_fit();
        }
        some
    }

    fn take(&mut self, person: &Id, id: &str) -> Option<Connection> {
        let own = self.people.get_mut(person)?;
        let at = own.iter().position(|one| one.id == id)?;
        let one = own.swap_remove(at);
        if own.is_empty() {
            self.people.remove(person);
        }
        Some(one)
    }
}
