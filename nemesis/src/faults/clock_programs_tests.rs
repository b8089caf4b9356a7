#![allow(clippy::unwrap_used)]
//! Clocks of real programs: what they say themselves, and that they live through it.
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use super::tests::{N, have, install, possible};
use super::*;
use crate::receipt::Status;
use crate::testing::{Started, TestEnv, block_on};
use crate::vdso::image::Image;

/// Seconds that a program is ahead of us, as it says.
type Ahead<'a> = &'a dyn Fn() -> i64;

/// A jump of an hour and back, several times, under load: the program must live, and tell the bent time,
/// and nobody else may.
fn rides_it_out(s: &Started, clock: &str, tells: Option<Ahead>) {
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    let neighbour = Started::shell("sleep 600");
    let code = Image::of(p.root).unwrap();
    block_on(async {
        for jump in [3600, -3600, 7200] {
            let mut done = install(&env, &p, json!({"jump_s": jump, "clock": clock})).await;
            assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
            std::thread::sleep(Duration::from_millis(100));
            if let Some(ahead) = tells {
                assert!((jump - 2..=jump + 2).contains(&ahead()), "{}", ahead());
            }
            true_before(neighbour.pid()).unwrap();
            let healed = done.handle.as_mut().unwrap().heal(&env).await;
            assert_eq!(healed.status, Status::Healed, "{healed:?}");
            assert_eq!(Image::of(p.root).unwrap(), code, "byte for byte");
            if let Some(ahead) = tells {
                std::thread::sleep(Duration::from_millis(100));
                assert!((-2..=2).contains(&ahead()), "{}", ahead());
            }
        }
    });
    assert!(p.alive());
}

fn now_s() -> i64 {
    bend::wall_now() / 1_000_000_000
}

#[test]
fn redis_rides_it_out_and_tells_the_bent_time() {
    if !possible() || !have("redis-server") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let unix = socket.to_str().unwrap();
    let args = ["--port", "0", "--save", "", "--unixsocket", unix];
    let mut command = Command::new("redis-server");
    let s = Started::new(command.args(args).current_dir(dir.path()));
    std::thread::sleep(Duration::from_millis(300));
    rides_it_out(&s, "both", Some(&|| redis_time(&socket) - now_s()));
}

fn redis_time(socket: &Path) -> i64 {
    let mut conn = std::os::unix::net::UnixStream::connect(socket).unwrap();
    conn.write_all(b"TIME\r\n").unwrap();
    let mut buffer = [0; 128];
    let n = conn.read(&mut buffer).unwrap();
    let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
    text.lines().nth(2).unwrap().trim().parse().unwrap()
}

#[test]
fn a_go_server_rides_it_out() {
    if !possible() || !have("etcd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let any = "http://127.0.0.1:0";
    let data = dir.path().to_str().unwrap();
    let mut command = Command::new("etcd");
    command.args(["--data-dir", data, "--listen-client-urls", any]);
    command.args(["--advertise-client-urls", any, "--listen-peer-urls", any]);
    let s = Started::new(&mut command);
    std::thread::sleep(Duration::from_millis(500));
    if !s.proc(N).alive() {
        return eprintln!("skipped: this etcd does not start without fixed ports");
    }
    rides_it_out(&s, "both", None);
}

/// Where a program is, if it is linked statically: no interpreter is asked for.
fn static_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    let file = std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|f| f.is_file())?;
    let mut header = Vec::new();
    let all = std::fs::File::open(&file).ok()?;
    all.take(4096).read_to_end(&mut header).ok()?;
    let word = |at: usize, n: usize| {
        let bytes = header.get(at..at + n)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |w, b| (w << 8) | usize::from(*b)),
        )
    };
    let (start, size, n) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    let interpreter = (0..n).any(|i| word(start + i * size, 4) == Some(3));
    (header.starts_with(b"\x7fELF\x02") && !interpreter).then_some(file)
}

/// Docker's command line is a static Go program, and asks for `events --since` by its own clock, once the
/// daemon has answered its ping. We play the daemon, and bend its clock in between.
#[test]
fn a_static_go_program_tells_the_bent_time() {
    let Some(docker) = static_program("docker").filter(|_| possible()) else {
        return eprintln!("skipped: no docker command here that is a static program");
    };
    let daemon = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("tcp://{}", daemon.local_addr().unwrap());
    let mut command = Command::new(docker);
    command
        .env_remove("DOCKER_CONTEXT")
        .env_remove("DOCKER_HOST");
    let s = Started::new(command.args(["-H", &host, "events", "--since", "0s"]));
    let p = s.proc(N);
    let env = TestEnv::of([p.clone()]);
    let mut conn = daemon.accept().unwrap().0;
    assert!(request(&mut conn).contains("/_ping"));
    let code = Image::of(p.root).unwrap();
    let asked = block_on(async {
        let mut done = install(&env, &p, json!({"jump_s": 3600})).await;
        assert_eq!(done.receipt.status, Status::Installed, "{:?}", done.receipt);
        let asked = loop {
            let pong = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nOstype: linux\r\nContent-Length: 0\r\n\r\n";
            conn.write_all(pong).unwrap();
            let line = request(&mut conn);
            if let Some((_, rest)) = line.split_once("events?since=") {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
                break digits.unwrap().parse::<i64>().unwrap();
            }
        };
        let healed = done.handle.as_mut().unwrap().heal(&env).await;
        assert_eq!(healed.status, Status::Healed, "{healed:?}");
        assert_eq!(Image::of(p.root).unwrap(), code, "byte for byte");
        asked
    });
    let ahead = asked - now_s();
    assert!((3590..=3602).contains(&ahead), "{ahead}");
    assert!(p.alive());
}

/// The first line of the next HTTP request, which has no body.
fn request(conn: &mut TcpStream) -> String {
    conn.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        conn.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_java_program_tells_the_bent_time() {
    if !possible() || !have("java") || !have("javac") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("Tick.java");
    // The wall clock alone: a JVM waits until absolute times of the monotonic clock, which would be an hour away.
    let program = "class Tick { public static void main(String[] a) throws Exception {\n\
        var file = java.nio.file.Path.of(a[0]);\n\
        while (true) { System.nanoTime(); long now = System.currentTimeMillis();\n\
        java.nio.file.Files.writeString(file, now / 1000 + \"\\n\"); Thread.sleep(1); } } }\n";
    std::fs::write(&source, program).unwrap();
    let built = Command::new("javac").arg(&source).status().unwrap();
    assert!(built.success());
    let said = dir.path().join("said");
    let mut command = Command::new("java");
    command.arg("-cp").arg(dir.path()).arg("Tick").arg(&said);
    let s = Started::new(&mut command);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !said.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // The file is empty for a moment each time that it is written.
    let tells = || loop {
        let text = std::fs::read_to_string(&said).unwrap();
        if let Some(seconds) = text.strip_suffix('\n') {
            break seconds.parse::<i64>().unwrap() - now_s();
        }
    };
    rides_it_out(&s, "wall", Some(&tells));
}

#[test]
fn a_zookeeper_server_rides_it_out_and_answers() {
    let jar = Path::new("/usr/share/java/zookeeper.jar");
    if !possible() || !have("java") || !jar.exists() {
        return eprintln!("skipped: no java or no {}", jar.display());
    }
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let conf = dir.path().join("zoo.cfg");
    let data = dir.path().display();
    let text = format!(
        "tickTime=200\ndataDir={data}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    );
    std::fs::write(&conf, text).unwrap();
    let classpath = "/usr/share/java/zookeeper.jar:/usr/share/java/*:/etc/zookeeper/conf";
    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-cp", classpath, main])
        .arg(&conf);
    let s = Started::new(command.current_dir(dir.path()));
    let answers = || {
        let mut said = String::new();
        let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut c| {
            c.set_read_timeout(Some(Duration::from_secs(5)))?;
            c.write_all(b"srvr")?;
            c.read_to_string(&mut said)
        });
        asked.is_ok() && said.contains("Zookeeper version")
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !answers() {
        assert!(Instant::now() < deadline, "zookeeper does not answer");
        std::thread::sleep(Duration::from_millis(100));
    }
    rides_it_out(&s, "wall", None);
    assert!(answers());
}
