//! A node's data directory: files before the first start, wipes, snapshots. The same code for
//! every host, on a path by which this process reaches the directory.

use std::{fs, io, path::Path};

use super::{DataFate, FileSpec, HostError};

/// Writes the files, parents too.
pub(super) fn write_files(dir: &Path, files: &[FileSpec]) -> Result<(), HostError> {
    for file in files {
        let path = dir.join(&file.path);
        let put = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&path, &file.contents)
        };
        put().map_err(HostError::io(path.display()))?;
    }
    Ok(())
}

/// Brings the directory of a dead node into the wanted state. Snapshots are kept in `aside`.
pub(super) fn apply(
    dir: &Path,
    aside: &Path,
    fate: &DataFate,
    files: &[FileSpec],
) -> Result<(), HostError> {
    match fate {
        DataFate::Kept => Ok(()),
        DataFate::Wiped => {
            empty(dir).map_err(HostError::io(dir.display()))?;
            write_files(dir, files)
        }
        DataFate::Snapshot(label) => {
            let from = aside.join(label);
            if !from.is_dir() {
                return Err(HostError::Unavailable {
                    what: format!("snapshot {label:?}"),
                    reason: "it was not taken".into(),
                    hint: "take it before the node is started from it".into(),
                });
            }
            empty(dir).map_err(HostError::io(dir.display()))?;
            copy(&from, dir).map_err(HostError::io(from.display()))
        }
    }
}

/// Copies the directory aside, replacing an older copy of that label.
pub(super) fn snapshot(dir: &Path, aside: &Path, label: &str) -> Result<(), HostError> {
    let to = aside.join(label);
    let take = || {
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::create_dir_all(&to)?;
        copy(dir, &to)
    };
    take().map_err(HostError::io(to.display()))
}

/// Hands the directory and all in it to a user.
pub(super) fn own(dir: &Path, (uid, gid): (u32, u32)) -> Result<(), HostError> {
    fn walk(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
        if path.symlink_metadata()?.is_dir() {
            for entry in fs::read_dir(path)? {
                walk(&entry?.path(), uid, gid)?;
            }
        }
        Ok(())
    }
    walk(dir, uid, gid).map_err(HostError::io(dir.display()))
}

/// Removes what is in the directory, not itself: it may be a mount point.
fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A live node renames and removes files while it is copied: those that vanish are left out.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, chown};
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let Ok(meta) = entry.path().symlink_metadata() else {
            continue;
        };
        if meta.is_dir() {
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, meta.permissions())?;
            copy(&entry.path(), &target)?;
        } else if meta.is_file() {
            match fs::copy(entry.path(), &target) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
        } else {
            continue; // sockets and pipes are made anew
        }
        chown(&target, Some(meta.uid()), Some(meta.gid()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn kept_wiped_and_restored() {
        let tmp = tempfile::tempdir().unwrap();
        let (dir, aside) = (tmp.path().join("data"), tmp.path().join("aside"));
        let files = [FileSpec {
            path: "conf/a".into(),
            contents: "1".into(),
        }];
        fs::create_dir_all(&dir).unwrap();
        write_files(&dir, &files).unwrap();
        fs::write(dir.join("log"), "old").unwrap();
        snapshot(&dir, &aside, "before").unwrap();
        fs::write(dir.join("log"), "new").unwrap();
        let log = || fs::read_to_string(dir.join("log"));

        apply(&dir, &aside, &DataFate::Kept, &files).unwrap();
        assert_eq!(log().unwrap(), "new");
        apply(&dir, &aside, &DataFate::Wiped, &files).unwrap();
        assert!(log().is_err());
        assert!(dir.join("conf/a").exists());
        apply(&dir, &aside, &DataFate::Snapshot("before".into()), &files).unwrap();
        assert_eq!(log().unwrap(), "old");
        let none = apply(&dir, &aside, &DataFate::Snapshot("other".into()), &files);
        assert!(none.unwrap_err().to_string().contains("not taken"));
        assert_eq!(log().unwrap(), "old", "a missing snapshot destroys nothing");
    }
}
