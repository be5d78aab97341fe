//! What an enqueue with its cancel costs: `cargo run --release -p sheen-ldlm --example cost`.
#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::time::{Duration, Instant as Clock};

use sheen_ldlm::server::{Config, Enqueue, Enqueued, Namespace};
use sheen_ldlm::{LockFlags, Owner, Policy};
use sheen_types::{Extent, InodeBits, Instant, LockHandle, LockMode, ResourceName};

const ROUNDS: u64 = 1_000_000;

fn measure(what: &str, standing: u64, policy: impl Fn(u64) -> Policy, mode: LockMode) {
    let config = Config { seed: 1, callback_timeout: Duration::from_secs(100) };
    let namespace = Namespace::new(config);
    let mut actions = Vec::new();
    let request = |number: u64, policy: Policy, mode: LockMode| Enqueue {
        resource: ResourceName([7, number % 1000, 0, 0]),
        policy,
        mode,
        flags: LockFlags::NO_EXPANSION,
        owner: Owner::Export(number % 16),
        remote_handle: LockHandle(number + 1),
        spares: None,
    };
    for number in 0..standing {
        let exact = Extent { start: number << 20, end: (number << 20) + 4095 };
        let _ = namespace.enqueue(
            Instant(0),
            Enqueue {
                resource: ResourceName([7, 0, 0, 0]),
                ..request(number, Policy::extent(exact), mode)
            },
            &mut actions,
        );
    }
    let started = Clock::now();
    for number in 0..ROUNDS {
        let mut asked = request(number, policy(number), mode);
        if standing > 0 {
            asked.resource = ResourceName([7, 0, 0, 0]);
        }
        if let Enqueued::Granted(lock) = namespace.enqueue(Instant(0), asked, &mut actions) {
            namespace.cancel(Instant(0), asked.owner, &[lock.handle], &mut actions);
        }
    }
    let nanoseconds = started.elapsed().as_nanos() as u64 / ROUNDS;
    println!("{what}: {nanoseconds} ns per enqueue and cancel");
    assert!(actions.is_empty());
}

fn main() {
    let bits = Policy::bits(InodeBits::LOOKUP | InodeBits::UPDATE);
    measure("inodebits PR, 1,000 resources", 0, |_| bits, LockMode::Pr);
    measure("extent PW, 1,000 objects", 0, |_| Policy::extent(Extent::ALL), LockMode::Pw);
    let between = |number: u64| {
        let start = ((number * 7919 % 10_000) << 20) + 8192;
        Policy::extent(Extent { start, end: start + 4095 })
    };
    measure("extent PW beside 10,000 on one object", 10_000, between, LockMode::Pw);
}
