//! The list of mutants: TOML files, of which the project's own are built in.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::backend::kernels::{KERNELS, Replacement};
use crate::oracle::Kind;

/// The project's own list, so that a program without its sources has it.
const EMBEDDED: [(&str, &str); 4] = [
    ("forward.toml", include_str!("../../tests/mutants/forward.toml")),
    ("backward.toml", include_str!("../../tests/mutants/backward.toml")),
    ("layout.toml", include_str!("../../tests/mutants/layout.toml")),
    ("order.toml", include_str!("../../tests/mutants/order.toml")),
];

/// What kind of finding a mutant is expected to give first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shows {
    /// Outputs that are wrong, or memory beside them.
    Values,
    /// Accesses in conflict.
    Race,
    /// A crash or an error.
    Crash,
    /// No end.
    Hang,
}

impl Shows {
    /// Its word in the list.
    pub fn name(self) -> &'static str {
        match self {
            Shows::Values => "values",
            Shows::Race => "race",
            Shows::Crash => "crash",
            Shows::Hang => "hang",
        }
    }

    /// What a finding of this kind shows.
    pub fn of(kind: Kind) -> Shows {
        match kind {
            Kind::Crash | Kind::DeviceFault | Kind::Error => Shows::Crash,
            Kind::Hang => Shows::Hang,
            Kind::Race => Shows::Race,
            _ => Shows::Values,
        }
    }
}

/// A bug in the text of a kernel source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name: lower-case words joined by hyphens.
    pub name: String,
    /// The kernel source.
    pub file: String,
    /// What is replaced. Occurs once, unless `occurrence` says which one is meant.
    pub find: String,
    /// Which occurrence, from 1 on.
    pub occurrence: Option<usize>,
    /// What stands there instead.
    pub replace: String,
    /// Its class of the bug taxonomy.
    pub class: String,
    /// What is wrong, in a sentence.
    pub about: String,
    /// How it is expected to show.
    pub shows: Shows,
    /// Can it show on a GPU, which sees wrong values and faults but no races?
    pub gpu: bool,
    /// Why no output can differ, where none can.
    pub equivalent: Option<String>,
}

/// A file of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListFile {
    mutant: Vec<Mutant>,
}

/// What is wrong with a list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// A file or folder that cannot be read.
    #[error("cannot read the list '{}': {source}", shown(.path))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no list.
    #[error("the list '{}': {message}", shown(.path))]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, on one line.
        message: String,
    },
    /// Two mutants of a name.
    #[error("two mutants are called '{}'", .0.escape_debug())]
    Twice(String),
    /// A mutant that does not fit the sources.
    #[error("the mutant '{}': {complaint}", .name.escape_debug())]
    Mutant {
        /// Its name.
        name: String,
        /// What is wrong.
        complaint: String,
    },
    /// A name that no mutant has.
    #[error("no mutant is called '{}'; the names are: {known}", .name.escape_debug())]
    Unknown {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// Nothing at all.
    #[error("no mutant in the list")]
    Empty,
}

/// A path as it may be printed: any control character escaped.
fn shown(path: &Path) -> String {
    path.display().to_string().escape_debug().to_string()
}

/// The class of conflicting accesses.
const RACE: &str = "RACE";

impl Mutant {
    /// Does it let accesses overtake each other? Then a GPU shows it when it pleases, or never.
    pub fn is_race(&self) -> bool {
        self.class == RACE
    }

    /// The kernel source with the bug in it.
    ///
    /// # Errors
    /// A source that is not there, or a text that does not occur as the mutant says.
    pub fn replacement(&self) -> Result<Replacement, ListError> {
        let complain = |complaint: String| ListError::Mutant { name: self.name.clone(), complaint };
        let source = KERNELS.iter().find(|source| source.name == self.file).ok_or_else(|| {
            let names = KERNELS.map(|source| source.name).join(", ");
            complain(format!("'{}' is no kernel source; those are {names}", self.file.escape_debug()))
        })?;
        if self.find.is_empty() || self.find == self.replace {
            return Err(complain("it changes nothing".into()));
        }
        let places: Vec<usize> = source.text.match_indices(&self.find).map(|(at, _)| at).collect();
        let at = match (self.occurrence, places.as_slice()) {
            (_, []) => return Err(complain(format!("its text does not occur in {}", self.file))),
            (None, &[at]) => at,
            (None, all) => {
                let times = all.len();
                return Err(complain(format!("its text occurs {times} times in {}, not once", self.file)));
            }
            (Some(n), all) => *n.checked_sub(1).and_then(|i| all.get(i)).ok_or_else(|| {
                complain(format!("occurrence {n} of its text in {}: there are {}", self.file, all.len()))
            })?,
        };
        let (before, rest) = source.text.split_at(at);
        let text = [before, &self.replace, &rest[self.find.len()..]].concat();
        Ok(Replacement { name: self.file.clone(), text })
    }

    fn check(&self) -> Result<(), ListError> {
        let words = |name: &str| {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !name.is_empty() && name.len() <= 40 && name.chars().all(word)
        };
        if !words(&self.name) {
            let complaint = "a name is up to 40 lower-case letters, digits and hyphens".to_string();
            return Err(ListError::Mutant { name: self.name.clone(), complaint });
        }
        self.replacement().map(|_| ())
    }
}

/// The list of these files and folders, or the project's own where none is named; with `only`, its
/// mutants of these names alone.
///
/// # Errors
/// [`ListError`].
pub fn load(paths: &[PathBuf], only: &[String]) -> Result<Vec<Mutant>, ListError> {
    let mut mutants = Vec::new();
    if paths.is_empty() {
        for (name, text) in EMBEDDED {
            mutants.extend(parse(Path::new(name), text)?);
        }
    }
    for path in files(paths)? {
        let text = fs::read_to_string(&path);
        let text = text.map_err(|source| ListError::Read { path: path.clone(), source })?;
        mutants.extend(parse(&path, &text)?);
    }
    validate(&mutants)?;
    choose(mutants, only)
}

/// Files as they are; of folders, the TOML files in the order of their names.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ListError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|source| ListError::Read { path: path.clone(), source })?;
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        inside.retain(|file| file.extension().is_some_and(|ext| ext == "toml"));
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Mutant>, ListError> {
    let list: ListFile = toml::from_str(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ").escape_debug().to_string();
        ListError::Format { path: path.into(), message }
    })?;
    Ok(list.mutant)
}

fn validate(mutants: &[Mutant]) -> Result<(), ListError> {
    if mutants.is_empty() {
        return Err(ListError::Empty);
    }
    for (i, mutant) in mutants.iter().enumerate() {
        mutant.check()?;
        if mutants[..i].iter().any(|other| other.name == mutant.name) {
            return Err(ListError::Twice(mutant.name.clone()));
        }
    }
    Ok(())
}

fn choose(mutants: Vec<Mutant>, only: &[String]) -> Result<Vec<Mutant>, ListError> {
    if let Some(name) = only.iter().find(|name| !mutants.iter().any(|mutant| mutant.name == **name)) {
        let known = mutants.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(ListError::Unknown { name: name.clone(), known });
    }
    let asked = |mutant: &Mutant| only.is_empty() || only.contains(&mutant.name);
    Ok(mutants.into_iter().filter(asked).collect())
}

#[cfg(test)]
mod tests;
