//! Just enough of PostgreSQL's protocol (version 3) to ask a server that trusts us one question.
//! Source: <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::net::SocketAddr;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Connects as `postgres`, asks, closes; the answer is the first column of the first row.
/// The caller bounds the time.
pub async fn ask(addr: SocketAddr, sql: &str) -> Result<String, String> {
    let io = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect(addr).await.map_err(io)?;
    stream.write_all(&startup()).await.map_err(io)?;
    until_ready(&mut stream).await?;
    stream
        .write_all(&message(b'Q', &cstr(sql)))
        .await
        .map_err(io)?;
    let row = until_ready(&mut stream).await?;
    let _ = stream.write_all(&message(b'X', &[])).await;
    row.ok_or_else(|| "the answer has no row".into())
}

fn startup() -> Vec<u8> {
    let mut body = 196_608_i32.to_be_bytes().to_vec();
    for word in ["user", "postgres", "database", "postgres"] {
        body.extend(cstr(word));
    }
    body.push(0);
    let mut all = length(&body);
    all.extend(body);
    all
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut all = vec![kind];
    all.extend(length(body));
    all.extend(body);
    all
}

/// The length counts itself.
fn length(body: &[u8]) -> Vec<u8> {
    (u32::try_from(body.len()).unwrap_or(u32::MAX - 4) + 4)
        .to_be_bytes()
        .to_vec()
}

fn cstr(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Reads messages up to ReadyForQuery. Answers the first value of the first row, if there was one.
async fn until_ready<R: AsyncRead + Unpin>(from: &mut R) -> Result<Option<String>, String> {
    let mut found = None;
    loop {
        let io = |e: std::io::Error| e.to_string();
        let kind = from.read_u8().await.map_err(io)?;
        let length = from.read_u32().await.map_err(io)?;
        let mut body = vec![0; (length as usize).saturating_sub(4).min(1 << 20)];
        from.read_exact(&mut body).await.map_err(io)?;
        match kind {
            b'Z' => return Ok(found),
            b'E' => return Err(error(&body)),
            b'R' if body != [0; 4] => return Err("the server asks for a password".into()),
            b'D' if found.is_none() => found = first_value(&body),
            _ => {}
        }
    }
}

/// DataRow: number of columns, then length and bytes of each.
fn first_value(body: &[u8]) -> Option<String> {
    let length = i32::from_be_bytes(body.get(2..6)?.try_into().ok()?);
    let value = body.get(6..6 + usize::try_from(length).ok()?)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// ErrorResponse: fields of a letter and a text; `M` is the message.
fn error(body: &[u8]) -> String {
    let fields = body.split(|b| *b == 0);
    let message = fields
        .filter_map(|f| f.split_first())
        .find(|(k, _)| **k == b'M');
    let text = message.map(|(_, text)| String::from_utf8_lossy(text).into_owned());
    text.unwrap_or_else(|| "an error without a message".into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn rows_and_errors_are_read() {
        let row = [&[0, 2, 0, 0, 0, 2][..], b"17", &[255, 255, 255, 255]].concat();
        let wire = [
            message(b'T', &[0, 0]),
            message(b'D', &row),
            message(b'Z', b"I"),
        ]
        .concat();
        assert_eq!(
            until_ready(&mut &wire[..]).await.unwrap().as_deref(),
            Some("17")
        );
        let e = message(b'E', b"SFATAL\0Mstarting up\0\0");
        assert_eq!(until_ready(&mut &e[..]).await.unwrap_err(), "starting up");
        let password = message(b'R', &[0, 0, 0, 3]);
        assert!(until_ready(&mut &password[..]).await.is_err());
        assert!(until_ready(&mut &b"D"[..]).await.is_err());
    }
}
