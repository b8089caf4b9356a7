//! A TCP proxy of a test's own, that can lose answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PASS: u8 = 0;
/// The next bytes from the server are dropped and their connection is closed.
const LOSE: u8 = 1;
/// Nothing passes any more, and nothing is closed.
const CUT: u8 = 2;

#[derive(Clone)]
pub struct Proxy {
    pub addr: String,
    mode: Arc<AtomicU8>,
}

impl Proxy {
    pub async fn to(server: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let mode = Arc::new(AtomicU8::new(PASS));
        let (server, shared) = (server.to_owned(), mode.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), shared.clone()));
            }
        });
        Proxy { addr, mode }
    }

    /// Loses the answer to what is sent next, and with it the connection; later ones pass.
    pub fn lose_next_answer(&self) {
        self.mode.store(LOSE, Ordering::SeqCst);
    }

    pub fn cut(&self) {
        self.mode.store(CUT, Ordering::SeqCst);
    }
}

async fn carry(client: TcpStream, server: String, mode: Arc<AtomicU8>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut up, mut down) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            n = from_client.read(&mut up) => {
                let Ok(n @ 1..) = n else { return };
                stand_still_if_cut(&mode).await;
                if to_server.write_all(&up[..n]).await.is_err() {
                    return;
                }
            }
            n = from_server.read(&mut down) => {
                let Ok(n @ 1..) = n else { return };
                stand_still_if_cut(&mode).await;
                let lost = mode.compare_exchange(LOSE, PASS, Ordering::SeqCst, Ordering::SeqCst);
                if lost.is_ok() || to_client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn stand_still_if_cut(mode: &AtomicU8) {
    while mode.load(Ordering::SeqCst) == CUT {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
