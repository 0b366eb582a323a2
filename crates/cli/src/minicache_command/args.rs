//! The options of `anabranch minicache`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_minicache::layout::{CHUNK_BYTES, ENTRIES};
use anabranch_minicache::name::Name;
use anabranch_net::quantity;
use clap::{Args, Subcommand, ValueHint};

/// Serve objects by their hashes from one file, milliseconds after the start
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Serve objects by their hashes from one file, milliseconds after the start.\n\n\
        An image is a file with a table of objects and their bytes. `make` makes one, `add` puts files into \
        it, `serve` answers GET and HEAD for /sha256:HEX and /b3:BASE32, ranges too. Only bytes are sent \
        that have been compared with their hashes since the start. If the serving process dies, its parent \
        starts the next one at once, on the same socket. A crash or kill -9 at any moment loses no object. \
        With --origin, what is missing is fetched from there, verified, and kept.",
    after_help = "Examples:\n  \
        anabranch minicache make cache.img --size 10GB\n  \
        anabranch minicache add cache.img film.mkv\n  \
        anabranch minicache serve cache.img --listen 127.0.0.1:8480\n  \
        curl -O http://127.0.0.1:8480/sha256:HEX\n  \
        anabranch minicache serve cache.img --origin http://origin.example:8480",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Minicache {
    /// What to do.
    #[command(subcommand)]
    pub command: MinicacheCommand,
}

/// The commands about images.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum MinicacheCommand {
    Make(Make),
    Add(Add),
    Rm(Rm),
    Ls(Ls),
    Check(Check),
    Serve(Serve),
}

/// Make an empty image
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: anabranch minicache make cache.img --size 10GB --entries 65536")]
pub struct Make {
    /// The file, which must not be there yet
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// The most bytes of the file, such as 500M, 10GB or 1TiB. It is sparse: it grows as objects come
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: u64,

    /// The number of objects that it can have, a power of two; each takes 256 bytes of memory, used or not
    #[arg(long, value_name = "COUNT", default_value_t = ENTRIES)]
    pub entries: u32,

    /// The bytes of a chunk, a power of two; an object takes whole chunks
    #[arg(long, value_name = "SIZE", default_value_t = CHUNK_BYTES, value_parser = chunk)]
    pub chunk: u32,
}

/// Put files into an image
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Put files into an image.\n\n\
        Prints the name of each by which it is asked for. A file that is there already is not written again. \
        No other process may have the image open.",
    after_help = "Examples:\n  \
        anabranch minicache add cache.img film.mkv\n  \
        anabranch minicache add cache.img index.json --type application/vnd.oci.image.index.v1+json"
)]
pub struct Add {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// The files
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,

    /// The media type that the server says, up to 48 bytes
    #[arg(long = "type", value_name = "TYPE", default_value = "application/octet-stream")]
    pub media_type: String,

    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Remove objects from an image
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: anabranch minicache rm cache.img sha256:HEX")]
pub struct Rm {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// The names of the objects: sha256:HEX, sha512:HEX, sha512-256:HEX or b3:BASE32
    #[arg(required = true, value_name = "NAME", value_parser = name)]
    pub names: Vec<Name>,
}

/// List the objects of an image
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch minicache ls cache.img\n  \
    anabranch minicache ls cache.img --json | jq -r 'select(.event == \"object\") | .digest'")]
pub struct Ls {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// Print one JSON object a line, and a summary with the room that is left
    #[arg(long)]
    pub json: bool,
}

/// Read all of an image, and compare it with its hashes
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example: anabranch minicache check cache.img")]
pub struct Check {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// Print one JSON object a line, and a summary
    #[arg(long)]
    pub json: bool,
}

/// Serve the objects of an image over HTTP until Ctrl-C
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Serve the objects of an image over HTTP until Ctrl-C.\n\n\
        Prints the URL. A path is /NAME, or /v2/…/blobs/NAME as clients of container registries ask. \
        http://ADDRESS/status has the numbers, /metrics has them for Prometheus. This process keeps the \
        socket; a second one serves, and is replaced at once if it dies: clients resume by a range.",
    after_help = "Examples:\n  \
        anabranch minicache serve cache.img\n  \
        anabranch minicache serve cache.img --listen '[::]:8480' --threads 2\n  \
        anabranch minicache serve cache.img --origin http://a.example:8480 --origin http://b.example:8480\n  \
        anabranch minicache serve cache.img --origin 'https://registry.example/v2/library/x/blobs/{name}'"
)]
pub struct Serve {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,

    /// The address to listen on; port 0 takes a free one
    #[arg(short, long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8480")]
    pub listen: SocketAddr,

    /// Offer the objects by mmTP too, to `anabranch get 'anabranch:b3:…?len=LENGTH' --from ADDR:PORT`, on
    /// this UDP address; `ls --json` has the URIs
    #[arg(long, value_name = "ADDR:PORT")]
    pub mmtp: Option<SocketAddr>,

    /// Fetch what is missing from URL/NAME, or from URL with {name} replaced; several are mirrors of each
    /// other. The object that was used least recently makes room. Without this option: 404
    #[arg(long = "origin", value_name = "URL", value_hint = ValueHint::Url)]
    pub origins: Vec<String>,

    /// The number of threads that serve; one a processor, at most eight, if it is left out
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub threads: Option<u8>,

    /// Serve in this process alone, as under a service manager that starts it again
    #[arg(long)]
    pub no_keeper: bool,

    /// Serve on the socket that is standard input, as this many earlier processes did.
    #[arg(long, hide = true, value_name = "COUNT", conflicts_with = "no_keeper")]
    pub worker: Option<u64>,

    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Say nothing of damage, failed fetches and dead processes on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = quantity::bytes(text).filter(|bytes| (1.0..1e18).contains(bytes));
    bytes
        .map(|bytes| bytes as u64)
        .ok_or_else(|| "expected an amount of bytes, such as 500M or 10GB".to_owned())
}

fn chunk(text: &str) -> Result<u32, String> {
    size(text).and_then(|bytes| u32::try_from(bytes).map_err(|_| "a chunk has at most 16 MiB".to_owned()))
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse(text).ok_or_else(|| "expected sha256:HEX, sha512:HEX, sha512-256:HEX or b3:BASE32".to_owned())
}
