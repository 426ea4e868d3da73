//! Maps by numbers that the server assigned. Clients cannot choose them, so a fast hash is
//! enough.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A map by such numbers.
pub type IdMap<K, V> = HashMap<K, V, RandomState>;
