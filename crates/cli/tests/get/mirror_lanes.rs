//! Directories of small files from a real nginx that ends each connection after a number of answers. The
//! tests check which requests use which connection.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::common::fetch::{run, skipped};
use crate::common::{anabranch, noise};
use crate::peers::nginx::{LOGGED, Nginx};

/// The most requests on a connection before its answers. While the limit is not known, these may be in vain.
const AHEAD_MAX: usize = 64;

/// A TCP relay that counts the requests on each connection.
struct Tap {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<usize>>>,
}

impl Tap {
    fn start(to: SocketAddr) -> Self {
        let front = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = front.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&requests);
        // The thread ends with the process.
        thread::spawn(move || {
            for near in front.incoming().flatten() {
                let Ok(far) = TcpStream::connect(to) else { continue };
                let number = {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push(0);
                    all.len() - 1
                };
                let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
                let all = Arc::clone(&all);
                thread::spawn(move || {
                    let mut seen = Vec::new();
                    pass(near, far, |bytes| {
                        seen.extend_from_slice(bytes);
                        let count = seen.windows(5).filter(|five| five == b"GET /").count();
                        all.lock().unwrap_or_else(PoisonError::into_inner)[number] = count;
                    });
                });
                thread::spawn(move || pass(far_too, near_too, |_| {}));
            }
        });
        Self { address, requests }
    }

    /// Returns the number of requests on each connection, in the order of their beginning.
    fn requests(&self) -> Vec<usize> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Passes bytes on until the stream ends.
fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes) = from.read(&mut buffer) {
        look(&buffer[..bytes]);
        if bytes == 0 || to.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A directory of files that are all different, and its Metalink.
struct Dist {
    dir: tempfile::TempDir,
    tree: BTreeMap<String, Vec<u8>>,
}

impl Dist {
    fn new(count: usize, bytes: usize) -> Self {
        let content = noise(bytes + count);
        let tree = (0..count).map(|n| (format!("f{n}.bin"), content[n..n + bytes].to_vec())).collect();
        let new = Self { dir: tempfile::tempdir().expect("a directory"), tree };
        new.write(&new.dir.path().join("dist"));
        new
    }

    fn write(&self, into: &Path) {
        fs::create_dir(into).expect("a directory");
        for (name, bytes) in &self.tree {
            fs::write(into.join(name), bytes).expect("a file");
        }
    }

    fn to(&self) -> PathBuf {
        self.dir.path().join("to")
    }

    /// Fetches the directory from the server with this URL.
    fn get(&self, url: &str, more: &[&str]) {
        let mut make = anabranch();
        make.args(["mirror-list", "make", "--quiet", "--force"]).arg(self.dir.path().join("dist")).arg(url);
        run(make).expect(0);
        let mut get = anabranch();
        get.arg("get").arg(self.dir.path().join("dist.meta4")).arg("--output").arg(self.to()).args(more);
        run(get).expect(0);
        for (name, bytes) in &self.tree {
            assert!(fs::read(self.to().join(name)).expect("a file") == *bytes, "other bytes in {name}");
        }
    }
}

/// Checks that each file was answered once, and returns the number of answers on each connection.
fn answered_once(nginx: &Nginx, dist: &Dist) -> Vec<usize> {
    let answered = nginx.answered(dist.tree.len());
    let names: BTreeSet<&String> = answered.iter().map(|(_, uri)| uri).collect();
    assert_eq!((names.len(), answered.len()), (dist.tree.len(), dist.tree.len()), "each file once");
    let mut each: BTreeMap<u64, usize> = BTreeMap::new();
    answered.iter().for_each(|(connection, _)| *each.entry(*connection).or_default() += 1);
    each.into_values().collect()
}

#[test]
fn nothing_is_asked_that_a_connection_does_not_answer() {
    for (count, limit) in [(60, 1), (300, 10), (1_500, 100), (2_600, 1_000)] {
        let more = format!("keepalive_requests {limit}; {LOGGED}");
        let Some(nginx) = Nginx::start("a limit of requests", &[&more]) else { return };
        let dist = Dist::new(count, 10_000);
        dist.write(&nginx.root(0).join("dist"));
        let tap = Tap::start(nginx.addresses[0]);
        dist.get(&format!("http://{}/dist/", tap.address), &[]);
        let each = answered_once(&nginx, &dist);
        assert!(each.iter().all(|answers| *answers <= limit), "{limit}: {each:?}");
        // nginx does not log requests beyond the limit, but the relay counts them.
        let requests = tap.requests();
        let more = requests.iter().filter(|requests| **requests > limit).count();
        let (all, known) = (requests.iter().sum::<usize>(), usize::from(limit == 1_000));
        assert!(more <= 1 - known && all <= count + AHEAD_MAX * (1 - known), "{limit}: {requests:?}");
        // There are only a few more connections than necessary.
        assert!(requests.len() <= count.div_ceil(limit) + 2, "{limit}: {requests:?}");
    }
}

#[test]
fn http_2_says_farewell_too() {
    let keys = tempfile::tempdir().expect("a directory");
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    make.args(["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.2"]);
    make.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    make.args(["-keyout", "key.pem", "-out", "cert.pem"]).current_dir(keys.path());
    match make.output() {
        Ok(output) if output.status.success() => {}
        other => return skipped(format!("HTTP/2: openssl: {other:?}")),
    }
    let at = |name: &str| keys.path().join(name);
    let read = |name: &str| fs::read_to_string(at(name)).expect("a file");
    for limit in [10, 100] {
        let more = format!("keepalive_requests {limit}; {LOGGED}");
        let nginx = Nginx::start_h2("HTTP/2 with a limit", &read("cert.pem"), &read("key.pem"), &more);
        let Some(nginx) = nginx else { return };
        let dist = Dist::new(1_000, 10_000);
        dist.write(&nginx.root(0).join("dist"));
        let cert = at("cert.pem").display().to_string();
        let url = nginx.url(0, "dist/").replace("http://", "https://");
        dist.get(&url, &["--cacert", &cert]);
        let each = answered_once(&nginx, &dist);
        assert!(each.iter().all(|answers| *answers <= limit), "{limit}: {each:?}");
        assert!(each.len() <= 1_000 / limit + 2, "{limit}: {each:?}");
    }
}
