//! The few file operations the log needs, as traits, so that a simulated disk can lose unsynced writes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::spare::{Spare, zeros};

/// A directory of the node.
pub trait Dir: Send + Sync {
    /// Names of the files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Opens a file for writing, creating it with `size` bytes of zeros; durable as a name when this returns.
    fn open(&self, name: &str, size: u64) -> io::Result<Box<dyn LogFile>>;
    /// Replaces a file's content; all or nothing, durable when this returns.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Is this a simulated disk, whose users must not leave the simulation's thread?
    fn simulated(&self) -> bool {
        false
    }
    /// Removes a file; no error where it does not exist.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The JSON of a small file; nothing where there is none. What is wrong with it is said with its name.
pub fn read_json<T: DeserializeOwned>(dir: &dyn Dir, name: &str) -> io::Result<Option<T>> {
    match dir.read(name) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| io::Error::other(format!("{name}: {error}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file being written.
pub trait LogFile: Send {
    /// Writes at an offset; durable only after [`LogFile::sync`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory on the real disk.
#[derive(Debug, Clone)]
pub struct RealDir {
    path: PathBuf,
    spare: Arc<Spare>,
    _lock: Arc<File>,
}

impl RealDir {
    /// Opens (creating it, for its owner only) a directory and takes its lock, which is held until the process ends: two
    /// replicas on one directory would destroy it.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = File::create(path.join("LOCK"))?;
        if lock.try_lock().is_err() {
            return Err(io::Error::other(
                "another replica is using this directory; stop it, or use another",
            ));
        }
        Ok(RealDir {
            path: path.to_owned(),
            spare: Arc::new(Spare::new(path.join("spare"))?),
            _lock: Arc::new(lock),
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Dir for RealDir {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn open(&self, name: &str, size: u64) -> io::Result<Box<dyn LogFile>> {
        let path = self.path.join(name);
        if size > 0 && !path.try_exists()? && !self.spare.take(&path, size)? {
            zeros(&File::create(&path)?, 0..size, |_| Ok(()))?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        // Shorter where a crash came before all zeros were written.
        let length = file.metadata()?.len();
        if length < size {
            zeros(&file, length..size, |_| Ok(()))?;
        }
        self.sync_names()?;
        if size > 0 {
            self.spare.prepare(size);
        }
        Ok(Box::new(RealFile { file }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path.join(format!("{name}.new"));
        let file = File::create(&temporary)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        fs::rename(&temporary, self.path.join(name))?;
        self.sync_names()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

struct RealFile {
    file: File,
}

impl LogFile for RealFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
