//! Clients and a server over a network that loses, doubles and reorders what it is given.
//!
//! The network's peers do what an RPC layer does: repeat a request until it is answered, answer a
//! repeated one again, drop answers that no request waits for. At every step no two clients believe
//! to hold conflicting locks; when the users are done, both sides agree on every lock.

use std::collections::BTreeMap;
use std::time::Duration;

use sheen_ldlm::client::{self, MatchRequest};
use sheen_ldlm::server::{self, Enqueue, Enqueued};
use sheen_ldlm::{LockDesc, LockFlags, Owner, Policy};
use sheen_types::{Errno, Extent, HashMap, InodeBits, Instant, LockHandle, LockMode, ResourceName};

const CLIENTS: u64 = 4;
const RESEND_TICKS: u64 = 30;

#[derive(Clone, Debug)]
enum Request {
    Enqueue { request: Enqueue, handle: LockHandle },
    Cancel { remote: LockHandle },
    Convert { handle: LockHandle, remote: LockHandle, drop: InodeBits },
}

#[derive(Clone, Debug)]
enum Message {
    Request { client: u64, xid: u64, request: Request },
    Answer { client: u64, xid: u64, answer: Option<Enqueued> },
    Callback { client: u64, id: u64, action: server::Action },
    CallbackDone { id: u64 },
}

#[derive(Clone, Copy, Debug)]
enum User {
    Idle,
    Asking { handle: LockHandle, mode: LockMode },
    Using { handle: LockHandle, mode: LockMode, until: u64 },
}

/// What a target answers to an enqueue that comes again, whose lock is there.
fn answer_known_lock(lock: server::LockInfo) -> Enqueued {
    let server::LockInfo { handle, desc, is_waited_for, .. } = lock;
    match desc.granted {
        Some(mode) => Enqueued::Granted(server::Granted {
            handle,
            mode,
            policy: desc.policy,
            flags: LockFlags::LOCK_CHANGED | LockFlags::AST_SENT.when(is_waited_for),
        }),
        None => Enqueued::Waiting { handle, flags: LockFlags::BLOCK_WAIT },
    }
}

struct Client {
    namespace: client::Namespace,
    users: [User; 3],
    requests: BTreeMap<u64, (Request, u64)>,
    drops: Vec<(u64, LockHandle)>,
    early: Vec<LockHandle>,
}

struct World {
    random: u64,
    now: u64,
    lossy: bool,
    server: server::Namespace,
    answers: HashMap<(u64, u64), Option<Enqueued>>,
    callbacks: BTreeMap<u64, (u64, server::Action, u64)>,
    clients: Vec<Client>,
    network: Vec<(u64, Message)>,
    number: u64,
    granted: u64,
    converted: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = |number| client::Config {
            seed: seed ^ number,
            lru_size: 4,
            lru_max_age: Duration::from_nanos(300),
        };
        let client = |number| {
            let namespace = client::Namespace::new(config(number));
            namespace.set_convert(number % 2 == 0);
            let users = [User::Idle; 3];
            let requests = BTreeMap::new();
            Client { namespace, users, requests, drops: Vec::new(), early: Vec::new() }
        };
        let callback_timeout = Duration::from_secs(1000);
        Self {
            random: seed,
            now: 0,
            lossy: true,
            server: server::Namespace::new(server::Config { seed, callback_timeout }),
            answers: HashMap::default(),
            callbacks: BTreeMap::new(),
            clients: (0..CLIENTS).map(client).collect(),
            network: Vec::new(),
            number: 0,
            granted: 0,
            converted: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % below
    }

    fn send(&mut self, message: Message) {
        let copies = match self.draw(10) {
            0 | 1 if self.lossy => 0,
            2 if self.lossy => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at = self.now + 1 + self.draw(20);
            self.network.push((at, message.clone()));
        }
    }

    fn time(&self) -> Instant {
        Instant(self.now)
    }

    fn request(&mut self, client: u64, request: Request) {
        self.number += 1;
        let xid = self.number;
        let again = self.now + RESEND_TICKS;
        self.clients[client as usize].requests.insert(xid, (request.clone(), again));
        self.send(Message::Request { client, xid, request });
    }

    fn server_actions(&mut self, actions: Vec<server::Action>) {
        for action in actions {
            let (server::Action::Blocking { export, .. }
            | server::Action::Completion { export, .. }) = action
            else {
                panic!("unexpected {action:?}");
            };
            self.number += 1;
            let id = self.number;
            self.callbacks.insert(id, (export, action, self.now + RESEND_TICKS));
            self.send(Message::Callback { client: export, id, action });
        }
    }

    fn client_actions(&mut self, client: u64, actions: Vec<client::Action>) {
        for action in actions {
            match action {
                client::Action::DropCovered { handle, .. } => {
                    let at = self.now + self.draw(15);
                    self.clients[client as usize].drops.push((at, handle));
                }
                client::Action::Cancel { remote_handle, .. } => {
                    self.request(client, Request::Cancel { remote: remote_handle });
                }
                client::Action::Convert { handle, remote_handle, drop, .. } => {
                    self.converted += 1;
                    self.request(client, Request::Convert { handle, remote: remote_handle, drop });
                }
                client::Action::Granted { .. } => self.granted += 1,
                client::Action::Failed { .. } | client::Action::Void { .. } => {
                    panic!("unexpected {action:?}")
                }
            }
        }
    }

    fn serve(&mut self, client: u64, xid: u64, request: Request) {
        let now = self.time();
        let owner = Owner::Export(client);
        let mut actions = Vec::new();
        let answered = self.answers.get(&(client, xid)).copied();
        let answer = match (answered, request) {
            (Some(answer), Request::Enqueue { handle, .. }) => {
                self.server.find(client, handle).map(answer_known_lock).or(answer)
            }
            (Some(answer), _) => answer,
            (None, Request::Enqueue { request, .. }) => {
                Some(self.server.enqueue(now, request, &mut actions))
            }
            (None, Request::Cancel { remote }) => {
                self.server.cancel(now, owner, &[remote], &mut actions);
                None
            }
            (None, Request::Convert { remote, drop, .. }) => {
                let done = self.server.convert(now, owner, remote, drop, &mut actions);
                done.err().map(|error| Enqueued::Denied(error.errno()))
            }
        };
        self.answers.insert((client, xid), answer);
        self.server_actions(actions);
        self.send(Message::Answer { client, xid, answer });
    }

    fn answered(&mut self, client: u64, xid: u64, answer: Option<Enqueued>) {
        let now = self.time();
        let it = &mut self.clients[client as usize];
        let Some((request, _)) = it.requests.remove(&xid) else { return };
        let mut actions = Vec::new();
        match request {
            Request::Enqueue { request, handle } => {
                let Enqueue { resource, policy, mode: requested, .. } = request;
                let desc = LockDesc { resource, policy, requested, granted: None };
                let reply = match answer {
                    Some(Enqueued::Granted(lock)) => client::Reply {
                        remote_handle: lock.handle,
                        desc: LockDesc { policy: lock.policy, granted: Some(lock.mode), ..desc },
                        flags: lock.flags,
                        connection: 1,
                    },
                    Some(Enqueued::Waiting { handle, flags }) => {
                        client::Reply { remote_handle: handle, desc, flags, connection: 1 }
                    }
                    other => panic!("unexpected {other:?}"),
                };
                it.namespace.replied(now, handle, &reply, &mut actions).unwrap();
            }
            Request::Convert { handle, .. } => {
                let result = if answer.is_some() { Err(Errno::ESTALE) } else { Ok(()) };
                it.namespace.converted(now, handle, result, &mut actions);
            }
            Request::Cancel { .. } => {}
        }
        self.client_actions(client, actions);
    }

    fn deliver(&mut self, message: Message) {
        let now = self.time();
        match message {
            Message::Request { client, xid, request } => self.serve(client, xid, request),
            Message::Answer { client, xid, answer } => self.answered(client, xid, answer),
            Message::CallbackDone { id } => {
                self.callbacks.remove(&id);
            }
            Message::Callback { client, id, action } => {
                let mut actions = Vec::new();
                let namespace = &self.clients[client as usize].namespace;
                let _ = match action {
                    server::Action::Blocking { remote_handle, wanted, flags, .. } => {
                        namespace.blocking(now, remote_handle, &wanted, flags, &mut actions)
                    }
                    server::Action::Completion { remote_handle, desc, flags, .. } => {
                        namespace.completion(now, remote_handle, &desc, flags, &mut actions)
                    }
                    other => panic!("unexpected {other:?}"),
                };
                self.client_actions(client, actions);
                self.send(Message::CallbackDone { id });
            }
        }
    }

    fn want(&mut self) -> MatchRequest {
        let mode = [LockMode::Pr, LockMode::Pw, LockMode::Cr][self.draw(3) as usize];
        let (resource, policy) = if self.draw(2) == 0 {
            let start = self.draw(16) * 4096;
            let end = start + self.draw(4) * 4096 + 4095;
            (1, Policy::extent(Extent { start, end }))
        } else {
            let bits = InodeBits(1 << self.draw(4));
            let try_bits = InodeBits(self.draw(16)).without(bits);
            (2, Policy::InodeBits { bits, try_bits, gid: 0 })
        };
        MatchRequest { resource: ResourceName([resource, 0, 0, 0]), policy, mode }
    }

    fn user_turn(&mut self, client: u64, user: usize, may_start: bool) {
        let now = self.time();
        let it = client as usize;
        let state = self.clients[it].users[user];
        match state {
            User::Idle if may_start && self.draw(20) == 0 => {
                let want = self.want();
                let MatchRequest { resource, policy, mode, .. } = want;
                let namespace = &self.clients[it].namespace;
                let state = if let Some(found) = namespace.find(&want) {
                    User::Asking { handle: found.handle, mode: found.mode }
                } else {
                    let flags = LockFlags::NONE;
                    let handle = namespace.begin(now, resource, policy, mode, flags);
                    let owner = Owner::Export(client);
                    let remote_handle = handle;
                    let spares = None;
                    let request =
                        Enqueue { resource, policy, mode, flags, owner, remote_handle, spares };
                    self.request(client, Request::Enqueue { request, handle });
                    User::Asking { handle, mode }
                };
                self.clients[it].users[user] = state;
            }
            User::Idle => {}
            User::Asking { handle, mode } => {
                let info = self.clients[it].namespace.lock(handle).expect("it has a user");
                if info.desc.granted.is_some() {
                    let until = self.now + self.draw(60);
                    self.clients[it].users[user] = User::Using { handle, mode, until };
                } else if may_start && self.draw(400) == 0 {
                    self.done(client, user, handle, mode);
                }
            }
            User::Using { handle, mode, until } if until <= self.now => {
                self.done(client, user, handle, mode);
            }
            User::Using { .. } => {}
        }
    }

    fn done(&mut self, client: u64, user: usize, handle: LockHandle, mode: LockMode) {
        let mut actions = Vec::new();
        let it = &mut self.clients[client as usize];
        it.users[user] = User::Idle;
        it.namespace.release(Instant(self.now), handle, mode, &mut actions);
        self.client_actions(client, actions);
    }

    fn client_turn(&mut self, client: u64, may_start: bool) {
        let now = self.time();
        (0..3).for_each(|user| self.user_turn(client, user, may_start));
        let chance = self.draw(50);
        let it = &mut self.clients[client as usize];
        let mut actions = Vec::new();
        let due = it.drops.iter().position(|(at, _)| *at <= self.now);
        if let Some((_, handle)) = due.map(|due| it.drops.swap_remove(due)) {
            it.namespace.covered_dropped(now, handle, &mut actions);
        }
        // Without this, at the end, only callbacks make locks go.
        if chance == 0 && may_start {
            it.namespace.shrink(now, 2, &mut actions);
        }
        let mut remote_handles = Vec::new();
        if chance == 1 && may_start && it.early.is_empty() {
            let resource = ResourceName([2, 0, 0, 0]);
            let bits = InodeBits::UPDATE | InodeBits::LOOKUP;
            it.early = it.namespace.cancel_early(resource, LockMode::Ex, bits, &mut actions);
        } else if chance < 5 && !it.drops.iter().any(|(_, handle)| it.early.contains(handle)) {
            remote_handles = it.namespace.take_cancelled(&std::mem::take(&mut it.early));
        }
        self.client_actions(client, actions);
        for remote in remote_handles {
            self.request(client, Request::Cancel { remote });
        }
    }

    fn resend(&mut self) {
        let mut again = Vec::new();
        for (client, it) in self.clients.iter_mut().enumerate() {
            for (&xid, (request, at)) in &mut it.requests {
                if *at <= self.now {
                    *at = self.now + RESEND_TICKS;
                    let (client, request) = (client as u64, request.clone());
                    again.push(Message::Request { client, xid, request });
                }
            }
        }
        for (&id, (client, action, at)) in &mut self.callbacks {
            if *at <= self.now {
                *at = self.now + RESEND_TICKS;
                again.push(Message::Callback { client: *client, id, action: *action });
            }
        }
        again.into_iter().for_each(|message| self.send(message));
    }

    fn tick(&mut self, may_start: bool) {
        self.now += 1;
        while let Some(at) = self.network.iter().position(|(at, _)| *at <= self.now) {
            let (_, message) = self.network.swap_remove(at);
            self.deliver(message);
        }
        (0..CLIENTS).for_each(|client| self.client_turn(client, may_start));
        self.resend();
        self.check();
    }

    fn held(&self, resource: u64) -> Vec<(u64, client::LockInfo)> {
        let name = ResourceName([resource, 0, 0, 0]);
        let of = |client: usize| {
            let locks = self.clients[client].namespace.dump(name).into_iter();
            locks.map(move |lock| (client as u64, lock))
        };
        let all = (0..CLIENTS as usize).flat_map(of);
        all.filter(|(_, lock)| lock.desc.granted.is_some()).collect()
    }

    fn check(&self) {
        for resource in [1, 2] {
            let held = self.held(resource);
            for (at, (client, lock)) in held.iter().enumerate() {
                for (other_client, other) in &held[at + 1..] {
                    let parts = if resource == 1 {
                        lock.desc.policy.range().overlaps(&other.desc.policy.range())
                    } else {
                        lock.desc.policy.inode_bits().intersects(other.desc.policy.inode_bits())
                    };
                    let (mode, theirs) = (lock.desc.granted.unwrap(), other.desc.granted.unwrap());
                    let fine = client == other_client || !parts || mode.compatible(theirs);
                    assert!(fine, "{client} {lock:?} and {other_client} {other:?}");
                }
            }
        }
    }

    fn quiet(&self) -> bool {
        let idle = |it: &Client| {
            it.requests.is_empty()
                && it.drops.is_empty()
                && it.early.is_empty()
                && it.users.iter().all(|user| matches!(user, User::Idle))
        };
        self.network.is_empty() && self.callbacks.is_empty() && self.clients.iter().all(idle)
    }

    fn unrest(&self) -> String {
        let users = self.clients.iter().map(|it| (it.users, it.requests.len(), it.drops.len()));
        let locks = [1, 2].map(|resource| {
            let name = ResourceName([resource, 0, 0, 0]);
            let of = |it: &Client| it.namespace.dump(name);
            (self.server.dump(name), self.clients.iter().map(of).collect::<Vec<_>>())
        });
        format!("{:#?} {locks:#?}", users.collect::<Vec<_>>())
    }

    fn agree(&self) {
        let mut of_server = Vec::new();
        let mut of_clients = Vec::new();
        for resource in [1, 2] {
            for lock in self.server.dump(ResourceName([resource, 0, 0, 0])) {
                assert!(lock.desc.granted.is_some(), "{lock:?} still waits");
                let Owner::Export(client) = lock.owner else { panic!() };
                of_server.push((client, lock.remote_handle, lock.handle, lock.desc.granted));
            }
            for (client, lock) in self.held(resource) {
                of_clients.push((client, lock.handle, lock.remote_handle, lock.desc.granted));
                let theirs = self.server.lock(lock.remote_handle).unwrap();
                assert_eq!(theirs.desc.policy, lock.desc.policy);
            }
        }
        of_server.sort();
        of_clients.sort();
        assert_eq!(of_server, of_clients);
    }
}

#[test]
fn clients_and_server_converge_over_a_bad_network() {
    let (mut granted, mut converted) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed);
        (0..1500).for_each(|_| world.tick(true));
        world.lossy = false;
        let mut left = 5000;
        while !world.quiet() {
            world.tick(false);
            left -= 1;
            assert!(left > 0, "seed {seed} does not come to rest: {}", world.unrest());
        }
        world.agree();
        granted += world.granted;
        converted += world.converted;
    }
    assert!(granted > 1000 && converted > 20, "{granted} grants, {converted} conversions");
}
