//! What a stream sends.
#![allow(clippy::unwrap_used)]

use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use raftlock_client::{Outcome, Stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

/// The library sends what is waiting in one message, as far as a node takes it.
#[tokio::test]
async fn many_long_requests_at_once_are_several_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let node = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(socket).await.unwrap();
        let mut longest = 0;
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            longest = longest.max(text.len());
            let answers = text.lines().map(|line| {
                let asked: Value = serde_json::from_str(line).unwrap();
                json!({ "id": asked["id"], "held": false, "waiters": 0 }).to_string()
            });
            let answers = answers.collect::<Vec<_>>().join("\n");
            socket.send(Message::text(answers)).await.unwrap();
        }
        longest
    });
    let (stream, events) = Stream::connect(&url).await.unwrap();
    // Each takes two bytes in JSON.
    let name = "\"".repeat(510);
    for shown in join_all((0..256).map(|_| stream.show(&name))).await {
        assert_eq!(shown.result().unwrap(), (false, 0));
    }
    let endless = stream.show(&"x".repeat(300 << 10)).await;
    assert!(matches!(endless, Outcome::DefiniteFail(error) if error.code == "too_large"));
    assert_eq!(stream.show("x").await.result().unwrap(), (false, 0));
    drop((stream, events));
    let longest = node.await.unwrap();
    assert!(
        longest <= 256 << 10,
        "a node ends a stream for {longest} bytes"
    );
}
