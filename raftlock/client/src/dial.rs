//! A WebSocket over TCP or TLS.

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::error::{CallError, Retry};
use crate::secure::Security;

/// Zeroed before every read, and kept by every stream.
const READ_BUFFER: usize = 16 << 10;

/// Either kind of connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

fn failed(error: impl ToString) -> CallError {
    CallError::local("connect", error, Retry::OtherNode)
}

/// Connects to the stream of the node at `base`, `http://host:port` or `https://host:port`.
pub(crate) async fn dial(
    base: &str,
    security: &Security,
) -> Result<WebSocketStream<Box<dyn Io>>, CallError> {
    let base = security.base_url(base)?;
    let (scheme, addr) = base.split_once("://").unwrap_or(("http", &base));
    let tcp = TcpStream::connect(addr).await.map_err(failed)?;
    tcp.set_nodelay(true).map_err(failed)?;
    let io: Box<dyn Io> = if scheme == "https" {
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(failed)?;
        let connector = TlsConnector::from(security.tls()?);
        Box::new(connector.connect(name, tcp).await.map_err(failed)?)
    } else {
        Box::new(tcp)
    };
    let mut request = format!("ws://{addr}/v1/stream")
        .into_client_request()
        .map_err(failed)?;
    if let Some(value) = security.header()? {
        request.headers_mut().insert("authorization", value);
    }
    let config = WebSocketConfig::default().read_buffer_size(READ_BUFFER);
    let (socket, _) = tokio_tungstenite::client_async_with_config(request, io, Some(config))
        .await
        .map_err(failed)?;
    Ok(socket)
}
