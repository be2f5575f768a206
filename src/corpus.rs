//! Saved cases: TOML files that say where a case came from, and plain text files that libFuzzer
//! keeps. Reading them trusts nothing in them; no file chooses what runs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::case::{ParseError, Scenario, limits};

/// A case with its story, as `corpus/regressions/*.toml` holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The scenario, in the notation.
    pub case: String,
    /// What it is, in a few words.
    pub title: Option<String>,
    /// Address of the report that it came from.
    pub origin: Option<String>,
    /// What was wrong there.
    pub cause: Option<String>,
    /// Classes of the bug taxonomy that it reaches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class: Vec<String>,
    /// Where the harness itself found it.
    pub found: Option<FoundBy>,
}

/// How a saved finding was found. Text for a reader: nothing here selects a backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundBy {
    /// Backend.
    pub backend: String,
    /// Planted fault, if any.
    pub fault: Option<String>,
    /// The user's kernel, if any.
    pub kernel: Option<String>,
    /// Oracle.
    pub oracle: String,
    /// Output.
    pub tensor: Option<String>,
    /// Kind.
    pub kind: String,
    /// The case as it was drawn, before shrinking.
    pub original: String,
}

/// A scenario of a file.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub scenario: Scenario,
    /// Its story, where the file has one.
    pub title: Option<String>,
}

/// Why a file gave no scenario.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// Reading failed.
    #[error("{}: {source}", shown(.path))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A device, a pipe or a socket.
    #[error("{}: not a regular file", shown(.0))]
    NotAFile(PathBuf),
    /// Larger than any case's text.
    #[error("{}: larger than {} bytes, which no case is", shown(.0), limits::MAX_TEXT)]
    TooLarge(PathBuf),
    /// Not UTF-8.
    #[error("{}: not a text file", shown(.0))]
    NotText(PathBuf),
    /// Not the format of an entry.
    #[error("{}: {message}", shown(.path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, on one line.
        message: String,
    },
    /// Not a case.
    #[error("{}: {source}", shown(.path))]
    Case {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: ParseError,
    },
    /// Nothing to read in a folder.
    #[error("{}: no case in it", shown(.0))]
    Empty(PathBuf),
}

/// A path as it may be printed: any control character escaped.
fn shown(path: &Path) -> String {
    path.display().to_string().escape_debug().to_string()
}

/// Reads files and, recursively, folders, in the order of their names. Files that cannot be read
/// are told beside the others, so that one bad file loses nothing.
pub fn load(paths: &[PathBuf]) -> (Vec<Saved>, Vec<CorpusError>) {
    let (mut saved, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        let before = saved.len() + errors.len();
        visit(path, &mut saved, &mut errors);
        if saved.len() + errors.len() == before {
            errors.push(CorpusError::Empty(path.clone()));
        }
    }
    (saved, errors)
}

fn visit(path: &Path, saved: &mut Vec<Saved>, errors: &mut Vec<CorpusError>) {
    let entries = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>),
        Ok(_) => {
            match load_file(path) {
                Ok(case) => saved.push(case),
                Err(error) => errors.push(error),
            }
            return;
        }
        Err(source) => Err(source),
    };
    match entries {
        Ok(mut entries) => {
            entries.sort_by_key(fs::DirEntry::file_name);
            let shown = entries.iter().filter(|entry| !is_beside_the_point(&entry.path()));
            // A link inside a folder may lead back up: only files and real folders are followed.
            for entry in shown.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
                visit(&entry.path(), saved, errors);
            }
        }
        Err(source) => errors.push(CorpusError::Read { path: path.into(), source }),
    }
}

/// Hidden files, and the text that explains a folder: no cases, found in a folder. Named by
/// themselves, they are read like any file.
fn is_beside_the_point(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    hidden || path.extension().is_some_and(|extension| extension == "md")
}

/// Reads one file: an [`Entry`] where its name ends in `.toml`, else a scenario's text.
///
/// # Errors
/// [`CorpusError`], a sentence with the file's name.
pub fn load_file(path: &Path) -> Result<Saved, CorpusError> {
    let read = |source| CorpusError::Read { path: path.into(), source };
    if !fs::metadata(path).map_err(read)?.is_file() {
        return Err(CorpusError::NotAFile(path.into()));
    }
    let mut bytes = Vec::new();
    let limit = limits::MAX_TEXT as u64 + 1;
    fs::File::open(path).map_err(read)?.take(limit).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 == limit {
        return Err(CorpusError::TooLarge(path.into()));
    }
    let text = String::from_utf8(bytes).map_err(|_| CorpusError::NotText(path.into()))?;
    let (case, title) = if path.extension().is_some_and(|ext| ext == "toml") {
        let entry: Entry = toml::from_str(&text)
            .map_err(|error| CorpusError::Format { path: path.into(), message: one_line(&error) })?;
        (entry.case, entry.title)
    } else {
        (text, None)
    };
    let scenario = case.trim().parse().map_err(|source| CorpusError::Case { path: path.into(), source })?;
    Ok(Saved { path: path.into(), scenario, title })
}

/// TOML's errors draw the source over several lines; a user needs the line and the message.
fn one_line(error: &toml::de::Error) -> String {
    error.message().lines().collect::<Vec<_>>().join(" ").escape_debug().to_string()
}

/// Why a finding could not be saved.
#[derive(Debug, thiserror::Error)]
#[error("cannot save findings in {}: {source}; name another folder with --save", shown(.folder))]
pub struct SaveError {
    folder: PathBuf,
    source: io::Error,
}

/// Can findings be saved in `folder`? Asked before a campaign, not hours later.
///
/// # Errors
/// Whatever the file system says, with the folder.
pub fn check_writable(folder: &Path) -> Result<(), SaveError> {
    let error = |source| SaveError { folder: folder.into(), source };
    let missing = !folder.exists();
    fs::create_dir_all(folder).map_err(error)?;
    tempfile::NamedTempFile::new_in(folder).map_err(error)?;
    if missing {
        // An empty folder would only puzzle; it is made again when there is something to save.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// Saves an entry under a name that is a function of its content; the file appears whole or not at
/// all. Returns its path.
///
/// # Errors
/// Whatever the file system says, with the folder.
pub fn save(folder: &Path, entry: &Entry) -> Result<PathBuf, SaveError> {
    write(folder, entry).map_err(|source| SaveError { folder: folder.into(), source })
}

fn write(folder: &Path, entry: &Entry) -> io::Result<PathBuf> {
    let text = toml::to_string(entry).map_err(io::Error::other)?;
    fs::create_dir_all(folder)?;
    let path = folder.join(file_name(entry));
    let readable = fs::Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

/// `dq-backward-0123456789abcdef.toml`.
fn file_name(entry: &Entry) -> String {
    let mut hasher = DefaultHasher::new();
    entry.case.hash(&mut hasher);
    let found = entry.found.as_ref();
    let what = found.map_or("case".to_string(), |found| {
        let tensor = found.tensor.as_deref().unwrap_or("run").to_lowercase();
        (&found.backend, &found.fault).hash(&mut hasher);
        format!("{tensor}-{}", found.kind)
    });
    format!("{what}-{:016x}.toml", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(case: &str) -> Entry {
        let (title, origin, cause) = (None, None, None);
        Entry { case: case.into(), title, origin, cause, class: vec![], found: None }
    }

    #[test]
    fn what_is_saved_loads_again_under_a_name_of_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let first = save(dir.path(), &entry("[2] h2")).unwrap();
        assert_eq!(save(dir.path(), &entry("[2] h2")).unwrap(), first);
        fs::write(dir.path().join("README.md"), "what lies here").unwrap();
        assert_ne!(save(dir.path(), &entry("[3] h2")).unwrap(), first);
        let (saved, errors) = load(&[dir.path().into()]);
        assert!(errors.is_empty());
        let mut texts: Vec<_> = saved.iter().map(|s| s.scenario.to_string()).collect();
        texts.sort();
        assert_eq!(texts, ["[2] h2", "[3] h2"]);
    }

    #[test]
    fn hostile_files_cost_a_sentence_each_and_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        put("a.toml", b"case = '[1]'\nbackend = 'cmd:rm'\n");
        put("b.toml", b"case = '[1*4000000000]'");
        put("c.toml", b"case = [[[[[[[");
        put("d", &[0xff, 0xfe, 0]);
        put("e", b"[1] \x1b[2J");
        put("good", b"[7]\n");
        fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        let (saved, errors) = load(&[dir.path().into(), dir.path().join("none"), "/dev/zero".into()]);
        assert_eq!(saved.len(), 1);
        assert_eq!(saved[0].scenario.to_string(), "[7]");
        assert_eq!(errors.len(), 8);
        for error in errors.iter().map(ToString::to_string) {
            assert!(!error.contains('\n') && !error.contains('\x1b'), "{error:?}");
        }
    }
}
