//! The stream's socket: whole messages in and out, and clients that do not read what they asked for.
//!
//! Nothing grows with what a client sends: no message is read before the last one's lines are taken, no line is taken while
//! 4,096 requests are unanswered or the answers have not left. A client that does not read is told so and dropped.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use tokio::sync::watch;

use super::stream::{Answers, Lines, Notices};
use super::{ApiError, App, Caller};
use crate::group::Answer;
use crate::host::{sleep, timeout};

const MESSAGE_LIMIT: usize = 256 << 10;
/// Zeroed before every read, and kept by every stream.
const READ_BUFFER: usize = 16 << 10;
/// Answers are sent once they are so many bytes, before more lines are taken.
const OUT_LIMIT: usize = 64 << 10;
/// How often a client is looked for that sends nothing: it is asked twice whether it is there, and then it is gone.
const QUIET: Duration = match cfg!(test) {
    false => Duration::from_secs(30),
    true => Duration::from_millis(300),
};
/// How long a client that is dropped may take to read why.
const LINGER: Duration = Duration::from_secs(5);
/// A close frame holds no longer reason.
const REASON_LIMIT: usize = 120;

/// `GET /v1/stream`
pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    let shown = headers.get(header::AUTHORIZATION).cloned();
    let tasks = app.tasks.clone();
    ws.max_message_size(MESSAGE_LIMIT)
        .read_buffer_size(READ_BUFFER)
        .on_upgrade(move |socket| tasks.track_future(run(app, caller, shown, socket)))
}

/// Why a stream ends.
enum End {
    /// The client went.
    Gone,
    /// The client is told.
    Told(u16, String),
}

impl End {
    fn told(code: u16, error: &ApiError) -> Self {
        End::Told(code, format!("{}: {}", error.code, error.message))
    }
}

async fn run(app: Arc<App>, caller: Caller, shown: Option<HeaderValue>, socket: WebSocket) {
    let (lines, answers, notices) = Lines::new(Arc::clone(&app), caller);
    let mut talk = Talk {
        reloaded: app.reloaded(),
        app,
        lines,
        answers,
        notices,
        shown,
        unread: Unread::default(),
        quiet: 0,
        socket,
    };
    let end = talk.run().await;
    let mut socket = talk.socket;
    drop((talk.lines, talk.answers, talk.notices));
    if let End::Told(code, reason) = end {
        let mut cut = reason.len().min(REASON_LIMIT);
        while !reason.is_char_boundary(cut) {
            cut -= 1;
        }
        let reason = Utf8Bytes::from(&reason[..cut]);
        let farewell = async {
            let frame = CloseFrame { code, reason };
            socket.send(Message::Close(Some(frame))).await?;
            // What it still sends is read, or the system would answer it with a reset before it has read why.
            while let Some(Ok(_)) = socket.recv().await {}
            Ok::<_, axum::Error>(())
        };
        let _ = timeout(LINGER, farewell).await;
    }
}

/// A message whose lines are not all taken yet.
#[derive(Default)]
struct Unread {
    text: Utf8Bytes,
    at: usize,
}

impl Unread {
    fn is_empty(&self) -> bool {
        self.at >= self.text.len()
    }

    fn next(&mut self) -> Option<&str> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let line = rest.split('\n').next().unwrap_or(rest);
        self.at += line.len() + 1;
        Some(line.trim_end_matches('\r'))
    }
}

struct Talk {
    app: Arc<App>,
    lines: Lines,
    answers: Answers,
    notices: Notices,
    reloaded: watch::Receiver<u64>,
    shown: Option<HeaderValue>,
    unread: Unread,
    /// Looks since it was heard.
    quiet: u32,
    socket: WebSocket,
}

impl Talk {
    async fn run(&mut self) -> End {
        let app = Arc::clone(&self.app);
        let mut batch = Vec::new();
        let mut next_look = pin!(sleep(QUIET));
        loop {
            self.take_lines();
            if let Err(end) = self.flush().await {
                return end;
            }
            if !self.unread.is_empty() && self.lines.has_room() {
                continue;
            }
            let reads = self.unread.is_empty() && self.lines.has_room();
            tokio::select! {
                count = self.answers.recv_many(&mut batch, 256) => {
                    if count == 0 { return End::Gone; }
                    for (id, answer) in batch.drain(..) { self.lines.answer(id, answer); }
                }
                Some(notice) = self.notices.recv() => self.lines.notice(&notice),
                message = self.socket.recv(), if reads => {
                    if let Err(end) = self.heard(message) { return end; }
                }
                () = next_look.as_mut() => {
                    next_look.set(sleep(QUIET));
                    if let Err(end) = self.look(reads).await { return end; }
                }
                Ok(()) = self.reloaded.changed() => {
                    if let Err(error) = self.known_still() { return End::told(close_code::POLICY, &error); }
                }
                () = app.stopping.cancelled() => return self.last_words().await,
            }
        }
    }

    /// What was answered and told already, before the node stops.
    async fn last_words(&mut self) -> End {
        while let Ok((id, answer)) = self.answers.try_recv() {
            self.lines.answer(id, answer);
        }
        while let Ok(notice) = self.notices.try_recv() {
            self.lines.notice(&notice);
        }
        match self.flush().await {
            Ok(()) => End::told(close_code::AWAY, &ApiError::of(&Answer::Stopped, &self.app)),
            Err(end) => end,
        }
    }

    fn take_lines(&mut self) {
        while self.lines.has_room() && self.lines.out.len() < OUT_LIMIT {
            match self.unread.next() {
                Some("") => {}
                Some(line) => self.lines.request(line),
                None => return,
            }
        }
    }

    fn heard(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.quiet = 0;
        match message {
            Some(Ok(Message::Text(text))) => self.unread = Unread { text, at: 0 },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Binary(_))) => {
                let error = ApiError::bad_request("send text messages");
                self.lines.error(0, &error);
            }
            Some(Ok(Message::Close(_))) | None => return Err(End::Gone),
            Some(Err(error)) => {
                let error = ApiError::bad_request(error.to_string());
                return Err(End::told(close_code::PROTOCOL, &error));
            }
        }
        Ok(())
    }

    /// Is the client still there? While nothing is read of it, nobody knows.
    async fn look(&mut self, reads: bool) -> Result<(), End> {
        self.quiet = if reads { self.quiet + 1 } else { 0 };
        match self.quiet {
            0 | 1 => Ok(()),
            2 | 3 => self.send(Message::Ping(Bytes::new())).await,
            _ => Err(End::Told(
                close_code::POLICY,
                "silent: nothing came, and no pong".to_owned(),
            )),
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        if self.lines.out.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.lines.out);
        self.send(Message::Text(text.into())).await
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        let sending = self.socket.send(message);
        match timeout(self.app.config.slow_reader, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => {
                self.app.slow_readers.fetch_add(1, Ordering::Relaxed);
                let ms = self.app.config.slow_reader.as_millis();
                let why = format!("slow_reader: what was answered was not read for {ms} ms");
                tracing::warn!("dropped a stream: {why}");
                Err(End::Told(close_code::POLICY, why))
            }
        }
    }

    /// The tokens were read anew: is this client's still one of them?
    fn known_still(&mut self) -> Result<(), ApiError> {
        let shown = self.shown.as_ref().and_then(|value| value.to_str().ok());
        self.lines.caller = self.app.policy().access.caller(shown)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::connect_async;
    use tokio_tungstenite::tungstenite::Message as Seen;

    use super::*;
    use crate::{Config, serve};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_answers_no_ping_is_dropped_and_who_does_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::single("127.0.0.1:0".parse().unwrap(), dir.path().to_owned());
        let handle = serve(config).await.unwrap();
        let url = format!("ws://{}/v1/stream", handle.addr());
        let (mut silent, _) = connect_async(&url).await.unwrap();
        let (mut idle, _) = connect_async(&url).await.unwrap();

        // A pong leaves when the stream is read.
        let reads = async {
            while let Some(Ok(message)) = idle.next().await {
                assert!(message.is_ping(), "{message}");
            }
        };
        timeout(QUIET * 6, reads).await.unwrap_err();
        let mut told = Vec::new();
        let told_all = async {
            while let Some(Ok(message)) = silent.next().await {
                told.push(message);
            }
        };
        timeout(Duration::from_secs(10), told_all).await.unwrap();
        let [Seen::Ping(_), Seen::Ping(_), Seen::Close(Some(end))] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(end.reason.as_str(), "silent: nothing came, and no pong");

        idle.send(Seen::text("nonsense")).await.unwrap();
        let answered = timeout(Duration::from_secs(5), async {
            loop {
                match idle.next().await.unwrap().unwrap() {
                    Seen::Ping(_) => {}
                    message => return message,
                }
            }
        });
        assert!(answered.await.unwrap().is_text());
        handle.stop().await;
    }

    #[test]
    fn lines_are_taken_one_by_one() {
        let mut unread = Unread {
            text: Utf8Bytes::from_static("a\r\n\nbü\nc"),
            at: 0,
        };
        let mut lines = Vec::new();
        while let Some(line) = unread.next() {
            lines.push(line.to_owned());
        }
        assert_eq!(lines, ["a", "", "bü", "c"]);
        assert!(unread.is_empty());
    }
}
