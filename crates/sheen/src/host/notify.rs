//! What a service manager hears of this process (`sd_notify`): that it is ready, what it does, that it stops.
//!
//! Each message is a datagram to the socket that `NOTIFY_SOCKET` names. It never waits and never fails its caller:
//! without a service manager there is no place to send it to, and one that does not read is not waited for.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sheen_io::World;

/// Where the service manager listens: a path, or behind an `@` an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds without a message after which the service manager takes the process for hung.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The process of which the service manager expects these messages.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Whether a service manager started this process.
pub(super) fn has_manager() -> bool {
    std::env::var_os(SOCKET).is_some()
}

/// The process serves.
pub(super) fn ready() {
    send("READY=1");
}

/// What it does or waits for, in a line: `systemctl status` shows it.
pub(super) fn status(what: &str) {
    send(&format!("STATUS={}", what.replace('\n', " ")));
}

/// The process begins to end.
pub(super) fn stopping() {
    send("STOPPING=1\nSTATUS=stops");
}

/// Sends a sign of life twice within the time that the service manager allows. It comes from a task: where tasks do
/// not get on, no request is served either.
pub(super) fn show_life(world: &World) {
    let value = |name| std::env::var(name).ok();
    let Some(pause) = pause(value(WATCHDOG), value(WATCHDOG_PID), std::process::id()) else {
        return;
    };
    let clock = Arc::clone(&world.clock);
    let lives = async move {
        loop {
            send("WATCHDOG=1");
            clock.sleep_until(clock.now() + pause).await;
        }
    };
    world.tasks.spawn("watchdog", Box::pin(lives));
}

/// How long to wait between two signs of life, if any are expected of the process `own`.
fn pause(limit: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let limit = limit?.parse().ok().map(Duration::from_micros)?;
    (!limit.is_zero()).then_some(limit / 2)
}

/// Keeps what `command` starts from speaking for this process: it is another one, and no part of the service.
pub(super) fn keep_from(command: &mut Command) {
    for name in [SOCKET, WATCHDOG, WATCHDOG_PID] {
        command.env_remove(name);
    }
}

fn send(message: &str) {
    let Some(address) = std::env::var(SOCKET).ok().and_then(|name| address(&name)) else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    // A service manager that does not read must not keep anything from being served.
    if socket.set_nonblocking(true).is_ok() {
        let _ = socket.send_to_addr(message.as_bytes(), &address);
    }
}

fn address(name: &str) -> Option<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None => SocketAddr::from_pathname(name).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_sent_by_the_process_of_which_they_are_expected() {
        let of = |limit: &str, pid: Option<&str>| {
            pause(Some(limit.to_owned()), pid.map(str::to_owned), 77)
        };
        let half = Some(Duration::from_secs(15));
        assert_eq!((of("30000000", None), of("30000000", Some("77"))), (half, half));
        assert_eq!((of("30000000", Some("78")), of("30000000", Some("x"))), (None, None));
        assert_eq!((of("0", None), of("soon", None), pause(None, None, 77)), (None, None, None));
    }

    #[test]
    fn a_socket_is_a_path_or_an_abstract_name() {
        let path = address("/run/systemd/notify").expect("an address");
        assert_eq!(path.as_pathname().and_then(|path| path.to_str()), Some("/run/systemd/notify"));
        let name = address("@/org/notify").expect("an address");
        assert_eq!(name.as_abstract_name(), Some(&b"/org/notify"[..]));
        assert!(address(&"x".repeat(200)).is_none(), "longer than a socket's path may be");
    }
}
