//! The artifact cache: compiled objects on disk, by the blake3 hash of what they were made from.
//!
//! 1. An entry is used only if its header, key, length and checksum are right; anything else is ignored, and replaced
//!    by the next store.
//! 2. Entries appear whole (written aside and renamed), so processes need no locks; two that store the same key store
//!    the same thing.
//! 3. A directory that can't be used means no cache, and one log line.
//!
//! Keys carry everything that the object depends on: the kernel's text, the code generator's version, the CPU and the
//! engine's version. Old entries are not collected here.

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

const MAGIC: &[u8; 8] = b"oxyfuel\x01";
/// Magic, key, length, checksum.
const HEADER: usize = 8 + 32 + 8 + 32;

/// What an artifact was made from, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key of a list of parts. Their borders count: ("ab", "c") and ("a", "bc") differ.
    pub fn of(parts: &[&[u8]]) -> Key {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Key(*hasher.finalize().as_bytes())
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The cache. Cheap to share; needs no locks.
pub struct ArtifactCache {
    /// None: no cache.
    dir: Option<PathBuf>,
    /// Set once a store failed; later ones aren't tried.
    broken: AtomicBool,
}

impl ArtifactCache {
    pub fn disabled() -> ArtifactCache {
        ArtifactCache { dir: None, broken: AtomicBool::new(true) }
    }

    /// A cache in this directory, which need not exist yet.
    pub fn in_dir(dir: impl Into<PathBuf>) -> ArtifactCache {
        ArtifactCache { dir: Some(dir.into()), broken: AtomicBool::new(false) }
    }

    /// In `OXYFUEL_CACHE_DIR`, else in `oxyfuel` in the user's cache directory. An empty `OXYFUEL_CACHE_DIR` disables
    /// the cache.
    pub fn from_env() -> ArtifactCache {
        let var = |name| std::env::var_os(name).map(PathBuf::from);
        let dir = match var("OXYFUEL_CACHE_DIR") {
            Some(dir) => (!dir.as_os_str().is_empty()).then_some(dir),
            None => var("XDG_CACHE_HOME")
                .filter(|dir| dir.is_absolute())
                .or_else(|| var("HOME").map(|home| home.join(".cache")))
                .map(|cache| cache.join("oxyfuel").join("artifacts")),
        };
        dir.map_or_else(ArtifactCache::disabled, ArtifactCache::in_dir)
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        let hex = key.hex();
        Some(self.dir.as_ref()?.join(&hex[..2]).join(&hex[2..]))
    }

    /// The artifact stored under a key, if there is a sound one.
    pub fn load(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        match read_entry(&path, key) {
            Ok(payload) => payload,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::debug!("artifact cache: can't read {}: {error}", path.display());
                None
            }
        }
    }

    /// Stores an artifact. Failing to is no error: the artifact is made again next time.
    pub fn store(&self, key: &Key, payload: &[u8]) {
        let Some(path) = self.path(key) else { return };
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = write_entry(&path, key, payload)
            && !self.broken.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("artifact cache disabled: can't write {}: {error}", path.display());
        }
    }
}

/// `None` for an entry that is not sound.
fn read_entry(path: &Path, key: &Key) -> io::Result<Option<Vec<u8>>> {
    let mut file = fs::File::open(path)?;
    let mut header = [0; HEADER];
    if let Err(error) = file.read_exact(&mut header) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let payload_len = file.metadata()?.len().saturating_sub(HEADER as u64);
    if header[..48] != header_of(key, payload_len) {
        return Ok(None);
    }
    let mut payload = Vec::new();
    file.read_to_end(&mut payload)?;
    let sound = payload.len() as u64 == payload_len && blake3::hash(&payload).as_bytes() == &header[48..];
    Ok(sound.then_some(payload))
}

/// The header without the checksum.
fn header_of(key: &Key, payload_len: u64) -> [u8; 48] {
    let mut header = [0; 48];
    header[..8].copy_from_slice(MAGIC);
    header[8..40].copy_from_slice(&key.0);
    header[40..].copy_from_slice(&payload_len.to_le_bytes());
    header
}

fn write_entry(path: &Path, key: &Key, payload: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    create_private_dir(dir)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    file.write_all(&header_of(key, payload.len() as u64))?;
    file.write_all(blake3::hash(payload).as_bytes())?;
    file.write_all(payload)?;
    file.persist(path)?;
    Ok(())
}

/// Machine code is loaded from here: nobody else may write to directories that we make.
fn create_private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, ArtifactCache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::in_dir(dir.path().join("cache"));
        (dir, cache)
    }

    #[test]
    fn stores_and_loads() {
        let (_dir, cache) = cache();
        let key = Key::of(&[b"kernel", b"cpu"]);
        assert_eq!(cache.load(&key), None);
        cache.store(&key, b"object");
        assert_eq!(cache.load(&key).as_deref(), Some(b"object".as_slice()));
        cache.store(&key, b"newer");
        assert_eq!(cache.load(&key).as_deref(), Some(b"newer".as_slice()));
        assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
        cache.store(&Key::of(&[b"empty"]), b"");
        assert_eq!(cache.load(&Key::of(&[b"empty"])), Some(vec![]));
    }

    #[test]
    fn unsound_entries_are_ignored_and_replaced() {
        let (_dir, cache) = cache();
        let key = Key::of(&[b"kernel"]);
        cache.store(&key, b"some object code");
        let path = cache.path(&key).unwrap();
        let good = fs::read(&path).unwrap();
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x40;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.load(&key), None, "flipped byte {i}");
            fs::write(&path, &good[..i]).unwrap();
            assert_eq!(cache.load(&key), None, "cut at {i}");
        }
        let mut long = good.clone();
        long.push(0);
        fs::write(&path, &long).unwrap();
        assert_eq!(cache.load(&key), None);
        // An entry of another key, moved here.
        let other = Key::of(&[b"other"]);
        cache.store(&other, b"other object");
        fs::copy(cache.path(&other).unwrap(), &path).unwrap();
        assert_eq!(cache.load(&key), None);
        cache.store(&key, b"again");
        assert_eq!(cache.load(&key).as_deref(), Some(b"again".as_slice()));
    }

    #[test]
    fn unusable_directories_mean_no_cache() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let cache = ArtifactCache::in_dir(file.join("below"));
        let key = Key::of(&[b"kernel"]);
        cache.store(&key, b"object");
        assert!(cache.broken.load(Ordering::Relaxed));
        cache.store(&key, b"object");
        assert_eq!(cache.load(&key), None);
        ArtifactCache::disabled().store(&key, b"object");
        assert_eq!(ArtifactCache::disabled().load(&key), None);
    }

    #[test]
    fn writers_and_readers_race_safely() {
        let (_dir, cache) = cache();
        let key = Key::of(&[b"kernel"]);
        let payload = vec![7; 100_000];
        cache.store(&key, &payload);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..50).for_each(|_| cache.store(&key, &payload)));
                scope.spawn(|| (0..50).for_each(|_| assert_eq!(cache.load(&key).as_ref(), Some(&payload))));
            }
        });
        let left_over = fs::read_dir(cache.path(&key).unwrap().parent().unwrap()).unwrap().count();
        assert_eq!(left_over, 1);
    }
}
