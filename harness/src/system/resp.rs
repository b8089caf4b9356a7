//! Just enough RESP2 to ask a Redis server or sentinel a question.
//! Source: <https://redis.io/docs/latest/develop/reference/protocol-spec/>

use std::net::SocketAddr;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Text(String),
    Int(i64),
    Nil,
    List(Vec<Reply>),
}

impl Reply {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(s) => Some(s),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(l) => l,
            _ => &[],
        }
    }
}

/// Connects, asks once, closes. The caller bounds the time.
pub async fn ask(addr: SocketAddr, command: &[&str]) -> Result<Reply, String> {
    let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
    let mut stream = BufReader::new(stream);
    let mut out = format!("*{}\r\n", command.len());
    for word in command {
        out += &format!("${}\r\n{word}\r\n", word.len());
    }
    stream
        .write_all(out.as_bytes())
        .await
        .map_err(|e| e.to_string())?;
    read(&mut stream).await
}

async fn read<R: AsyncBufReadExt + Unpin + Send>(from: &mut R) -> Result<Reply, String> {
    let mut line = String::new();
    from.read_line(&mut line).await.map_err(|e| e.to_string())?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err("the server closed the connection".into());
    };
    let number = || rest.parse::<i64>().map_err(|e| format!("{line:?}: {e}"));
    match kind {
        "+" => Ok(Reply::Text(rest.into())),
        "-" => Err(rest.into()),
        ":" => Ok(Reply::Int(number()?)),
        "$" => {
            let Ok(len) = usize::try_from(number()?) else {
                return Ok(Reply::Nil);
            };
            let mut bytes = vec![0; len + 2];
            from.read_exact(&mut bytes)
                .await
                .map_err(|e| e.to_string())?;
            bytes.truncate(len);
            Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" => {
            let mut items = Vec::new();
            for _ in 0..number()?.max(0) {
                items.push(Box::pin(read(from)).await?);
            }
            Ok(Reply::List(items))
        }
        _ => Err(format!("not RESP: {line:?}")),
    }
}

/// The value of `key` in an answer to INFO.
pub fn info<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn replies_are_read() {
        let mut wire = &b"*3\r\n$5\r\na\r\nbc\r\n:-7\r\n$-1\r\n"[..];
        let got = read(&mut wire).await.unwrap();
        assert_eq!(
            got,
            Reply::List(vec![
                Reply::Text("a\r\nbc".into()),
                Reply::Int(-7),
                Reply::Nil
            ])
        );
        assert_eq!(read(&mut &b"-ERR no\r\n"[..]).await, Err("ERR no".into()));
        assert!(read(&mut &b""[..]).await.is_err());
        assert!(read(&mut &b"$5\r\nab"[..]).await.is_err());
    }

    #[test]
    fn info_finds_its_line() {
        assert_eq!(
            info("# Server\r\nredis_version:8.0.2\r\n", "redis_version"),
            Some("8.0.2")
        );
        assert_eq!(info("redis_version_x:1", "redis_version"), None);
    }
}
