//! The fence: what keeps a holder that lost its lease without noticing from writing over the work of the next one.

use std::fmt;

/// A token that only grows: whoever takes a lock after another has a larger one.
///
/// A lease alone does not keep two from working at once: a process can stand still between looking at its lease and
/// writing. So the thing that is written remembers the largest token it has seen, and refuses smaller ones. In
/// Redis that is a key beside the data, in its slot, and these lines at the top of every script that writes for a
/// runner (`tests/it/fenced_write.lua` is a whole one):
///
/// ```lua
/// -- KEYS 2 fence   ARGV 2 token
/// if tonumber(redis.call('GET', KEYS[2]) or '0') > tonumber(ARGV[2]) then return {'fenced'} end
/// redis.call('SET', KEYS[2], ARGV[2])
/// ```
///
/// In SQL it is a column: `UPDATE ... SET ..., fence = ?1 WHERE id = ?2 AND fence <= ?1`, and no row changed means
/// fenced. Who is fenced off ends its turn. A holder that has something to lose to its predecessor's late writes
/// writes the fence first, before it reads what it works on.
///
/// Tokens follow the engine's clock and never fall behind the last one given, so that they grow also when the engine
/// lost everything; they fit into Lua's and JavaScript's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    pub(crate) fn new(token: u64) -> Self {
        Self(token)
    }

    pub fn token(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
