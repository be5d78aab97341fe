//! Filling a plan up: from the defaults of the directory, of the file system, and ours.
//!
//! A requested layout decides everything by itself but the pool, which it inherits (`lod_qos_parse_config`).
//! Without a request a file takes the directory's default; what a plain one leaves open comes from the
//! root's, and what is open still from the MDT's own parameters (`lod_ah_init`).

use sheen_wire::lov::PoolName;

use super::{END_OF_FILE, KnownOsts, Part, Plan, Striping};

/// What the MDT's own parameters say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Bytes of a stripe, a multiple of 64 KiB, never 0.
    pub stripe_size: u32,
    /// Stripes, never 0.
    pub stripe_count: u16,
    /// The first OST.
    pub first: Option<u16>,
}

/// How files are laid out that are made to be appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appending {
    /// Stripes, [`super::STRIPES_ALL`] among them; 0 for as many as other files have
    /// (`append_stripe_count`).
    pub stripe_count: u16,
    /// The pool, instead of that of other files; empty for theirs (`append_pool`).
    pub pool: PoolName,
}

impl Appending {
    /// As all other files.
    const DEFAULT: Self = Self { stripe_count: 0, pool: PoolName([0; 16]) };
}

/// Names that stand for no pool of that name: none at all; the directory's.
const POOL_NONE: &[u8] = b"ignore";
const POOLS_INHERITED: [&[u8]; 2] = [b"inherit", b"none"];

fn is_inherited(pool: &PoolName) -> bool {
    pool.is_empty() || POOLS_INHERITED.contains(&pool.as_bytes())
}

fn is_reserved(pool: &PoolName) -> bool {
    pool.as_bytes() == POOL_NONE || POOLS_INHERITED.contains(&pool.as_bytes())
}

impl Plan {
    /// What a new file will look like whose creator asks for no layout: `parent` and `root` are the
    /// defaults of its directory and of the file system.
    #[must_use]
    pub fn inherited(parent: Option<Plan>, root: Option<Plan>, ours: &Defaults) -> Plan {
        let mut plan = match (parent, root) {
            (None, root) => root.unwrap_or_default(),
            (Some(Plan::Plain(mut own)), Some(Plan::Plain(root))) => {
                own.take_open_from(&root);
                Plan::Plain(own)
            }
            (Some(parent), _) => parent,
        };
        plan.settle(ours);
        plan
    }

    /// As [`Plan::inherited`], for a file that is made to be appended to, as logs are: laid out
    /// plainly, with what `how` says and for the rest as the first component.
    #[must_use]
    pub fn for_appending(self, how: &Appending, ours: &Defaults) -> Plan {
        if *how == Appending::DEFAULT {
            return self;
        }
        let first = match self {
            Self::Plain(striping) => striping,
            Self::Composite(mut parts) => parts.swap_remove(0).striping,
        };
        let count = if how.stripe_count == 0 { first.stripe_count } else { how.stripe_count };
        let striping = Striping {
            on_mdt: false,
            overstriped: false,
            stripe_count: count,
            pool: if how.pool.is_empty() { first.pool } else { how.pool },
            osts: Vec::new(),
            ..first
        };
        let mut plan = Plan::Plain(striping);
        plan.settle(ours);
        plan
    }

    /// What a file will look like whose creator requests this layout. `inherited` is what it would be
    /// without.
    #[must_use]
    pub fn filled(mut self, inherited: &Plan, ours: &Defaults, known: &KnownOsts<'_>) -> Plan {
        let pool = inherited.pool();
        for striping in self.stripings_mut() {
            if striping.on_mdt || striping.pool.as_bytes() == POOL_NONE {
                striping.pool = PoolName::default();
            } else if is_inherited(&striping.pool) {
                striping.pool = pool;
            }
        }
        self.settle(ours);
        if let Plan::Composite(parts) = &mut self {
            parts.iter_mut().for_each(Part::limit_count);
        }
        self.stripings_mut().into_iter().for_each(|striping| striping.fit_pool(known));
        self
    }

    /// The default that a directory gets when this is set: a pool it had stays if none is named.
    #[must_use]
    pub fn over(mut self, old: Option<&Plan>) -> Plan {
        let kept = old.map(Plan::pool).filter(|_| !self.is_empty()).unwrap_or_default();
        let names_none = self.stripings().iter().all(|striping| striping.pool.is_empty());
        let is_listed = self.stripings().iter().any(|striping| !striping.osts.is_empty());
        for striping in self.stripings_mut() {
            if names_none && !is_listed && !striping.on_mdt {
                striping.pool = kept;
            } else if is_reserved(&striping.pool) {
                striping.pool = PoolName::default();
            }
        }
        self
    }

    /// Decides sizes and counts that are open.
    pub(crate) fn settle(&mut self, ours: &Defaults) {
        match self {
            Self::Plain(striping) => {
                let is_free = striping.pool.is_empty() && striping.osts.is_empty();
                striping.first = striping.first.or(ours.first.filter(|_| is_free));
                striping.settle(END_OF_FILE, ours);
            }
            Self::Composite(parts) => {
                parts.iter_mut().for_each(|part| part.striping.settle(part.end, ours));
            }
        }
    }
}

impl Striping {
    fn take_open_from(&mut self, root: &Striping) {
        if self.stripe_count == 0 {
            self.stripe_count = root.stripe_count;
        }
        if self.stripe_size == 0 {
            self.stripe_size = root.stripe_size;
        }
        if self.pool.is_empty() {
            self.first = self.first.or(root.first);
            self.pool = root.pool;
        }
    }

    /// A component's stripes must end where it ends. So where the default size does not fit, it is
    /// the largest power of two that does.
    fn settle(&mut self, end: u64, ours: &Defaults) {
        if self.on_mdt {
            return;
        }
        if self.stripe_count == 0 {
            self.stripe_count = ours.stripe_count;
        }
        let fits = |size: u32| end == END_OF_FILE || end.is_multiple_of(u64::from(size));
        if self.stripe_size == 0 && fits(ours.stripe_size) {
            self.stripe_size = ours.stripe_size;
        } else if self.stripe_size == 0 || !fits(self.stripe_size) {
            self.stripe_size = 1 << end.trailing_zeros().min(31);
        }
    }

    /// A first OST that is not in the pool forbids the pool; else no more stripes than it has OSTs.
    fn fit_pool(&mut self, known: &KnownOsts<'_>) {
        let Some(pool) = known.pool(&self.pool) else { return };
        let is_outside = match self.osts.is_empty() {
            true => self.first.is_some_and(|first| !pool.contains(&first)),
            false => self.osts.iter().any(|ost| !pool.contains(ost)),
        };
        if is_outside {
            self.pool = PoolName::default();
        } else if !self.overstriped && usize::from(self.stripe_count) > pool.len() {
            self.stripe_count = pool.len() as u16;
        }
    }
}

impl Part {
    /// No more stripes than the component has room for.
    pub(crate) fn limit_count(&mut self) {
        let striping = &mut self.striping;
        let open = striping.on_mdt || striping.stripes_per_ost().is_some();
        if open || self.end == END_OF_FILE {
            return;
        }
        let room =
            self.end.saturating_sub(self.start).div_ceil(u64::from(striping.stripe_size.max(1)));
        striping.stripe_count = u64::from(striping.stripe_count).min(room) as u16;
        striping.osts.truncate(usize::from(striping.stripe_count));
    }
}
