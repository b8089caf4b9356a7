//! Certificates in PEM files. An error names the file.

use std::fmt::Display;
use std::io;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An error that names the file.
pub fn bad(path: &Path, what: impl Display) -> io::Error {
    io::Error::other(format!("{}: {what}", path.display()))
}

/// The certificates of a file; at least one.
pub fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read(path).map_err(|error| bad(path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(certs) if !certs.is_empty() => Ok(certs),
        Ok(_) => Err(bad(path, "holds no certificate")),
        Err(error) => Err(bad(path, error)),
    }
}

/// The private key of a file.
pub fn key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => bad(path, "holds no private key in PEM"),
        other => bad(path, other),
    })
}

/// The authorities of a file, and no others.
pub fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(path)? {
        roots.add(cert).map_err(|error| bad(path, error))?;
    }
    Ok(roots)
}
