//! One page over HTTP, made anew for each request: what Prometheus and its like scrape.
//!
//! A thread for each connection, at most [`CONNECTIONS_MAX`], one request each: scrapers come every
//! few seconds. A scraper that is slow or sends nonsense is disconnected, and one that has asked for nothing
//! yet makes room for a new one; nothing that a peer sends is kept.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// Connections at once. Beyond it the oldest that has asked for nothing yet goes; if all have asked, a new one
/// gets status 503.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Lines of a request's head.
const HEADERS_MAX: usize = 64;
/// How long a peer may take for any piece of what it sends or receives.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pieces in which a head may come: with [`PATIENCE`], an end to how long a peer can hold a thread.
const PIECES_MAX: usize = 8;
/// Where the page is.
const PATH: &str = "/metrics";

/// Makes the page.
type Make = Box<dyn Fn() -> String + Send + Sync>;

/// Serves the page until it is dropped.
pub struct PageServer {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

/// An address to listen at: `IP:PORT`, or a port of this machine alone.
///
/// # Errors
/// One line on what it is not.
pub fn page_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| format!("{text} is neither a port nor IP:PORT"))
}

impl PageServer {
    /// Listens at `address`; `make` answers the page, of the type `kind`, to each request.
    ///
    /// # Errors
    /// If the address cannot be bound or a thread not started.
    pub fn start(
        address: SocketAddr,
        kind: &'static str,
        make: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (stop, make): (_, Arc<Make>) = (Arc::clone(&stopped), Arc::new(Box::new(make)));
        let name = std::thread::Builder::new().name("metrics".to_owned());
        let listening = name.spawn(move || accept(&listener, kind, &make, &stop))?;
        Ok(Self { address, stopped, listening: Some(listening) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener, which holds the address until it has ended.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let (Ok(_), Some(listening)) = (woken, self.listening.take()) {
            let _ = listening.join();
        }
    }
}

/// A connection, in its place.
struct Caller {
    stream: TcpStream,
    /// Whether its request is read, and answered now.
    has_asked: AtomicBool,
}

/// The connections, the oldest first.
#[derive(Clone, Default)]
struct Callers(Arc<Mutex<Vec<Arc<Caller>>>>);

impl Callers {
    /// A place for a new one; or it is returned, if all places are being answered.
    fn place(&self, stream: TcpStream) -> Result<Place, TcpStream> {
        let mut all = self.0.lock();
        if all.len() >= CONNECTIONS_MAX {
            let idle = all.iter().position(|caller| !caller.has_asked.load(Ordering::Relaxed));
            let Some(idle) = idle else { return Err(stream) };
            // Its thread reads the end of it, and goes.
            let _ = all.remove(idle).stream.shutdown(Shutdown::Both);
        }
        let caller = Arc::new(Caller { stream, has_asked: AtomicBool::new(false) });
        all.push(Arc::clone(&caller));
        Ok(Place { caller, callers: self.clone() })
    }
}

/// Keeps a connection in the table while it lives.
struct Place {
    caller: Arc<Caller>,
    callers: Callers,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.callers.0.lock().retain(|other| !Arc::ptr_eq(other, &self.caller));
    }
}

fn accept(listener: &TcpListener, kind: &'static str, make: &Arc<Make>, stopped: &AtomicBool) {
    let callers = Callers::default();
    for stream in listener.incoming() {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            pause();
            continue;
        };
        let place = match callers.place(stream) {
            Ok(place) => place,
            Err(stream) => {
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = HttpResponse::plain(503, "too many at once").send(&stream, false);
                continue;
            }
        };
        let make = Arc::clone(make);
        let name = std::thread::Builder::new().name("metrics-scrape".to_owned());
        let served = name.spawn(move || {
            if let Err(error) = serve(&place.caller, kind, &make) {
                tracing::debug!(%error, "a scraper went away");
            }
        });
        if let Err(error) = served {
            tracing::warn!(%error, "no thread for a scraper");
        }
    }
}

/// No descriptors, say: trying again at once would only burn the processor.
#[expect(clippy::disallowed_methods, reason = "a host's own thread, which has nothing else to do")]
fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

/// An answer of HTTP.
struct HttpResponse {
    status: u16,
    kind: &'static str,
    body: String,
}

impl HttpResponse {
    fn plain(status: u16, text: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    fn reason(&self) -> &'static str {
        match self.status {
            200 => "OK",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Bad Request",
        }
    }

    fn send(&self, mut stream: &TcpStream, head_only: bool) -> io::Result<()> {
        let Self { status, kind, body } = self;
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut text = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n{allow}\r\n",
            self.reason(),
            body.len()
        );
        if !head_only {
            text += body;
        }
        stream.write_all(text.as_bytes())
    }
}

fn serve(caller: &Caller, kind: &'static str, make: &Make) -> io::Result<()> {
    let stream = &caller.stream;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = head(stream)?;
    caller.has_asked.store(true, Ordering::Relaxed);
    let (answer, head_only) = match head {
        Head::Asks { method, path } => {
            let path = path.split('?').next().unwrap_or_default();
            let answer = match (method.as_str(), path) {
                ("GET" | "HEAD", PATH) => HttpResponse { status: 200, kind, body: make() },
                ("GET" | "HEAD", "/") => HttpResponse::plain(200, PATH),
                ("GET" | "HEAD", _) => HttpResponse::plain(404, "only /metrics is here"),
                _ => HttpResponse::plain(405, "only GET and HEAD"),
            };
            (answer, method == "HEAD")
        }
        Head::Wrong(status) => {
            (HttpResponse::plain(status, "no request that is understood"), false)
        }
    };
    answer.send(stream, head_only)
}

enum Head {
    Asks { method: String, path: String },
    Wrong(u16),
}

fn head(mut stream: &TcpStream) -> io::Result<Head> {
    let mut bytes = Vec::new();
    for _ in 0..PIECES_MAX {
        let mut piece = [0; 2048];
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..count]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
                return Ok(Head::Asks { method: text(request.method), path: text(request.path) });
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => {}
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Ok(Head::Wrong(431));
            }
            Err(_) => return Ok(Head::Wrong(400)),
        }
    }
    Ok(Head::Wrong(431))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn the_page_is_made_for_a_correct_request() {
        let anywhere = page_address("0").unwrap();
        let server = PageServer::start(anywhere, "text/x", || "one\n".to_owned()).unwrap();
        let address = server.address();
        assert!(address.ip().is_loopback());
        let page = ask(address, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 4\r\n")
        );
        assert!(page.ends_with("\r\n\r\none\n"), "{page}");
        let head = ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 4") && head.ends_with("\r\n\r\n"), "{head}");
        let long = [b"GET /metrics HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 9000]].concat();
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        let many = format!("GET /metrics HTTP/1.1\r\n{many}\r\n");
        for (request, status) in [
            (&b"GET /etc HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x00", "400"),
            (&long, "431"),
            (many.as_bytes(), "431"),
        ] {
            let answer = ask(address, request);
            let got = answer.split(' ').nth(1).unwrap_or("the connection closed");
            // What was not read when we answer may make the system reset the connection.
            assert!(got == status || answer.is_empty() && status == "431", "{status}: {answer}");
        }
        drop(server);
        assert!(TcpStream::connect_timeout(&address, PATIENCE).is_err(), "it has gone");
    }

    #[test]
    fn a_peer_that_asks_for_nothing_keeps_no_other_out() {
        let anywhere = page_address("0").unwrap();
        let server = PageServer::start(anywhere, "text/x", || "one\n".to_owned()).unwrap();
        let address = server.address();
        let idle = || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /met").unwrap();
            stream.set_read_timeout(Some(PATIENCE / 2)).unwrap();
            stream
        };
        let mut idle: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| idle()).collect();
        for _ in 0..3 {
            let page = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(page.starts_with("HTTP/1.1 200 OK"), "{page:?}");
        }
        // The oldest had to go, and only that: an answered one makes room for the next.
        let mut rest = Vec::new();
        let went = idle[0].read_to_end(&mut rest);
        assert!(
            went.is_ok() || went.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        );
        let last = idle.last_mut().unwrap();
        last.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
        last.read_to_end(&mut rest).unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 200 OK"));
    }

    #[test]
    fn addresses_are_of_this_machine_unless_said_otherwise() {
        let shown = |text| page_address(text).map(|address| address.to_string());
        assert_eq!(shown("9100").as_deref(), Ok("127.0.0.1:9100"));
        assert_eq!(shown("0.0.0.0:9100").as_deref(), Ok("0.0.0.0:9100"));
        assert_eq!(shown("[::1]:80").as_deref(), Ok("[::1]:80"));
        for wrong in ["", "65536", "localhost:9100", "10.0.0.1", ":9100"] {
            assert!(page_address(wrong).is_err_and(|line| !line.contains('\n')), "{wrong}");
        }
    }
}
