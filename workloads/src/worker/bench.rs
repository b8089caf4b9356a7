//! A worker as a controller sees it, for tests.
#![allow(clippy::unwrap_used)]

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};

use super::{Input, Out, WorkerArgs, serve};
use crate::protocol::FromWorker;
use crate::stores::witness::{Rules, Witness};

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// What runs the worker, to be ended with the bench.
pub enum Running {
    Task(tokio::task::JoinHandle<ExitCode>),
    Program(#[allow(dead_code)] tokio::process::Child),
}

pub struct Bench {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    from: Lines<BufReader<Reader>>,
    seen: Vec<Value>,
    log: tempfile::NamedTempFile,
    pub running: Running,
}

impl Bench {
    /// Our own worker, in this process.
    pub async fn new(system: Value, fenced: bool) -> Bench {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(theirs);
        let args = WorkerArgs { system: None };
        let task = tokio::spawn(serve(args, Input::over(input), Out::to(output)));
        let (from, to) = tokio::io::split(ours);
        Bench::begin(
            Box::new(to),
            Box::new(from),
            Running::Task(task),
            system,
            fenced,
        )
        .await
    }

    /// A program; `None` where it cannot be started.
    pub async fn program(words: &[&str], system: Value, fenced: bool) -> Option<Bench> {
        let child = tokio::process::Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(e) => {
                eprintln!("skipped: {} does not start: {e}", words[0]);
                return None;
            }
        };
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let running = Running::Program(child);
        Some(Bench::begin(Box::new(to), Box::new(from), running, system, fenced).await)
    }

    async fn begin(
        to: Box<dyn AsyncWrite + Send + Unpin>,
        from: Reader,
        running: Running,
        system: Value,
        fenced: bool,
    ) -> Bench {
        let log = tempfile::NamedTempFile::new().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let rules = Rules {
            fenced,
            raise_on_read: true,
        };
        let witness = Witness::new(rules, log.reopen().unwrap());
        tokio::spawn(crate::stores::witness::serve(listener, witness));
        let from = BufReader::new(from).lines();
        let mut bench = Bench {
            to,
            from,
            seen: Vec::new(),
            log,
            running,
        };
        let hello = bench
            .ask(json!({"id":1,"op":"init","protocol":1,"worker":0,"clients":4,"seed":7,"system":system,
                "store":{"kind":"witness","addr":addr},"ttl_ms":300,"timeout_ms":500}))
            .await;
        assert_eq!(hello["type"], "ok", "{hello}");
        bench
    }

    pub async fn send(&mut self, line: Value) {
        self.to
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Reads on to the first line that `which` picks; the others are kept in `seen`.
    pub async fn until(&mut self, which: impl Fn(&Value) -> bool) -> Value {
        let read = async {
            loop {
                let line = self.from.next_line().await.unwrap().unwrap();
                FromWorker::parse(line.as_bytes()).unwrap();
                let line: Value = serde_json::from_str(&line).unwrap();
                if which(&line) {
                    return line;
                }
                self.seen.push(line);
            }
        };
        tokio::time::timeout(Duration::from_secs(5), read)
            .await
            .unwrap()
    }

    pub async fn event(&mut self, name: &str) -> Value {
        if let Some(at) = self.seen.iter().position(|l| l["event"] == name) {
            return self.seen.remove(at);
        }
        self.until(|l| l["event"] == name).await
    }

    pub async fn answer(&mut self, id: u64) -> Value {
        self.until(|l| l["id"] == id && l["type"].is_string()).await
    }

    pub async fn ask(&mut self, line: Value) -> Value {
        let id = line["id"].as_u64().unwrap();
        self.send(line).await;
        self.answer(id).await
    }

    /// Acquires as client 0 and answers the fields that name the grant.
    pub async fn grant(&mut self, id: u64, ttl_ms: u64) -> Value {
        let got = self
            .ask(json!({"id":id,"op":"acquire","client":0,"key":"L0","ttl_ms":ttl_ms,"wait_ms":0}))
            .await;
        let v = &got["value"];
        json!({"client":0,"key":"L0","owner":v["owner"],"fence":v["fence"]})
    }

    pub async fn claims(&mut self, id: u64) -> usize {
        let got = self.ask(json!({"id":id,"op":"ping"})).await;
        got["value"]["claims"].as_array().unwrap().len()
    }

    pub fn stored(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log.path()).unwrap();
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }
}
