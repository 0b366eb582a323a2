use super::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("example.meta4");
const OLD: &str = include_str!("example.metalink");

fn file(inner: &str) -> Result<File, MetalinkError> {
    let text = format!("<metalink xmlns='{NAMESPACE_4}'><file name='x'>{inner}</file></metalink>");
    Metalink::parse(text.as_bytes()).map(|mut metalink| metalink.files.remove(0))
}

fn wrong(text: &str) -> (u64, MetalinkErrorKind) {
    let bad = Metalink::parse(text.as_bytes()).expect_err("it is wrong");
    assert!(bad.to_string().len() > 10);
    (bad.line, bad.kind)
}

fn in_file(inner: &str) -> MetalinkErrorKind {
    file(inner).expect_err("it is wrong").kind
}

fn hex(hash: u8, len: usize) -> String {
    format!("{hash:02x}").repeat(len)
}

/// RFC 5854 requires absolute URLs, but several generators write relative ones.
#[test]
fn relative_places_are_seen_from_the_metalink() {
    let text = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">\
                <url priority=\"2\">../f</url><url>ftp://h/f</url><url priority=\"1\">/g?a='</url>\
                </file></metalink>";
    let read = Metalink::parse(text.as_bytes()).expect("a Metalink");
    assert!(read.is_only_relative());
    let seen = read.seen_from(&Url::parse("http://h/a/b.meta4?q").expect("a URL"));
    assert!(!seen.is_only_relative());
    let urls: Vec<_> = seen.files[0].mirrors.iter().map(|mirror| mirror.url.as_str()).collect();
    assert_eq!((urls, seen.files[0].ignored_mirrors), (vec!["http://h/g?a='", "http://h/f"], 1));
}

/// The example of RFC 5854 §1.1, with complete hashes instead of its shortened ones.
#[test]
fn the_example_of_rfc_5854() {
    let metalink = Metalink::parse(EXAMPLE.as_bytes()).unwrap();
    let [one, two] = &metalink.files[..] else { panic!("two files") };
    assert_eq!((&*one.name, one.size), ("example.ext", Some(14_471_447)));
    assert_eq!(one.hashes.digests.sha256.unwrap()[..4], [0xf0, 0xad, 0x92, 0x9c]);
    assert_eq!((one.hashes.digests.sha512, one.hashes.blake3, one.content()), (None, None, None));
    let urls: Vec<_> =
        one.mirrors.iter().map(|m| (m.url.as_str(), m.priority, m.location.as_deref())).collect();
    let want = [
        ("https://best.example.net/example.ext", 1, None),
        ("http://example.com/example.ext?a=1&b=2", 2, Some("fr")),
        ("http://last.example.com/example.ext", PRIORITY_LAST, None),
    ];
    assert_eq!(urls, want);
    assert_eq!(one.ignored_mirrors, 1, "the one by ftp");
    assert_eq!(one.ignored_pieces, ["sha-1"]);
    let pieces = one.pieces.as_ref().unwrap();
    assert_eq!((pieces.bytes, pieces.hashes.len()), (8 << 20, 2));
    assert_eq!(pieces.hashes.get(1), Some(&[0xcd; 32][..]));
    assert_eq!(one.leaves, None, "a torrent is no leaf list");

    assert_eq!((&*two.name, two.file_name()), ("dir & more/<b>.ext", "<b>.ext"));
    assert_eq!(two.hashes.digests.sha512, Some([0x11; 64]));
    assert_eq!(two.content(), Some(ContentId { root: [0x22; 32], length: 3 }));
    assert_eq!(two.leaves.as_deref(), Some("b.b3leaves"));
    assert_eq!(two.sibling_leaf_list().as_deref(), Some(&b"b.b3leaves"[..]));
    assert_eq!(two.mirrors[0].url.as_str(), "http://example.com/b");
}

#[test]
fn version_3() {
    let metalink = Metalink::parse(OLD.as_bytes()).unwrap();
    let [file] = &metalink.files[..] else { panic!("one file") };
    assert_eq!((&*file.name, file.size), ("example.ext", Some(524_289)));
    assert_eq!(file.hashes.digests.sha256, Some([0xab; 32]));
    let pieces = file.pieces.as_ref().unwrap();
    let hashes = PieceHashes::Sha256(vec![[0; 32], [1; 32], [2; 32]]);
    assert_eq!((pieces.bytes, &pieces.hashes), (262_144, &hashes));
    assert_eq!(file.ignored_pieces, ["sha1"]);
    assert_eq!(file.ignored_hashes, ["sha1"]);
    let urls: Vec<_> =
        file.mirrors.iter().map(|m| (m.url.as_str(), m.priority, m.location.as_deref())).collect();
    let want = [
        ("http://mirror.example.net/example.ext", 1, Some("us")),
        ("https://other.example.net/example.ext", 91, None),
        ("http://third.example.net/example.ext", PRIORITY_LAST, None),
    ];
    assert_eq!(urls, want);
    assert_eq!(file.ignored_mirrors, 2, "ftp, and a torrent by http");
}

#[test]
fn names_stay_below_a_directory() {
    for bad in
        ["/etc/passwd", "../x", "a/../b", "a/..", "..", ".", "", "a//b", "a/", "./a", "a&#10;b", "a&#x9b;b"]
    {
        let text = format!("<metalink xmlns='{NAMESPACE_4}'>\n<file name='{bad}'/></metalink>");
        let (line, wrong) = wrong(&text);
        assert!(line == 2 && matches!(wrong, MetalinkErrorKind::Name(_)), "{bad}: {wrong}");
    }
    for good in ["x", "a/b/c", "..a", "a b", ".hidden", "ä"] {
        assert!(is_safe_name(good), "{good}");
    }
    assert!(!is_safe_name(&"a".repeat(256)) && !is_safe_name(&"a/".repeat(3_000)));
    assert_eq!(
        wrong(&format!("<metalink xmlns='{NAMESPACE_4}'><file/></metalink>")).1,
        MetalinkErrorKind::NoName
    );
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let after = |text: &str| wrong(&format!("<metalink\nxmlns='{NAMESPACE_4}'>\n{text}"));
    assert_eq!(wrong(""), (1, MetalinkErrorKind::Xml("it has no element".into())));
    assert_eq!(wrong("<html/>"), (1, MetalinkErrorKind::Root("html".into())));
    assert_eq!(wrong(&format!("<m:x xmlns:m='{NAMESPACE_4}'/>")), (1, MetalinkErrorKind::Root("x".into())));
    assert_eq!(wrong("\n<metalink version='3.0'/>"), (2, MetalinkErrorKind::Root("metalink".into())));
    assert_eq!(after("</metalink>"), (0, MetalinkErrorKind::Empty));
    assert_eq!(after("<file name='x'>\n"), (4, MetalinkErrorKind::Xml("it ends within an element".into())));
    assert!(matches!(after("\n<file name='x'></metalink>"), (4, MetalinkErrorKind::Xml(_))));
    assert!(matches!(after("<file name='x"), (_, MetalinkErrorKind::Xml(_))));
    assert_eq!(after("</metalink><metalink/>").1, MetalinkErrorKind::Xml("a second root element".into()));
    let latin = [format!("<metalink xmlns='{NAMESPACE_4}'>\n").as_bytes(), b"\xe4"].concat();
    assert_eq!(Metalink::parse(&latin), Err(MetalinkError { line: 2, kind: MetalinkErrorKind::Encoding }));
    assert_eq!(in_file("<size>1 MB</size>"), MetalinkErrorKind::Size("1 MB".into()));
    assert_eq!(in_file("<size/>"), MetalinkErrorKind::Size(String::new()));
    assert_eq!(in_file("<size>70368744177665</size>"), MetalinkErrorKind::Size("70368744177665".into()));
    assert_eq!(in_file("<size>1</size><size>2</size>"), MetalinkErrorKind::Differ("size"));
    assert_eq!(
        in_file("<hash type='sha-256'>aa</hash>"),
        MetalinkErrorKind::Hash("sha-256", 64, "aa".into())
    );
    let two = format!("<hash type='blake3'>{}</hash><hash type='blake3'>{}</hash>", hex(1, 32), hex(2, 32));
    assert_eq!(in_file(&two), MetalinkErrorKind::Differ("blake3"));
    assert_eq!(in_file("<pieces type='sha-256' length='0'/>"), MetalinkErrorKind::PieceBytes("0".into()));
    assert_eq!(in_file("<pieces type='sha-256'/>"), MetalinkErrorKind::PieceBytes(String::new()));
    let pieces =
        format!("<size>5</size><pieces type='sha-256' length='4'><hash>{}</hash></pieces>", hex(1, 32));
    assert_eq!(in_file(&pieces), MetalinkErrorKind::PieceCount { found: 1, expected: 2 });
    let leaves = format!("<metaurl mediatype='{}'>a b</metaurl>", crate::leaf_list::MEDIA_TYPE);
    assert_eq!(in_file(&leaves), MetalinkErrorKind::Leaves("a b".into()));
    let long = format!("<url>http://h/{}</url>", "a".repeat(TEXT_MAX));
    assert_eq!(in_file(&long), MetalinkErrorKind::TooMany("bytes of text in an element", TEXT_MAX));
    let deep = "<a>".repeat(DEPTH_MAX);
    assert_eq!(in_file(&deep), MetalinkErrorKind::TooMany("elements within each other", DEPTH_MAX));
    assert_eq!(
        in_file(&"<url>http://h/</url>".repeat(MIRRORS_MAX + 1)),
        MetalinkErrorKind::TooMany("mirrors", MIRRORS_MAX)
    );
    let huge = vec![b' '; METALINK_MAX + 1];
    assert_eq!(Metalink::parse(&huge).map_err(|e| e.kind), Err(MetalinkErrorKind::TooLong(METALINK_MAX + 1)));
    let name = "n".repeat(300);
    assert!(format!("{}", in_file(&format!("<size>{name}</size>"))).len() < 200);
}

#[test]
fn nothing_grows() {
    let laughs = "<!DOCTYPE metalink [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]>";
    let text = format!("{laughs}<metalink xmlns='{NAMESPACE_4}'><file name='&b;'/></metalink>");
    assert_eq!(wrong(&text), (1, MetalinkErrorKind::Doctype));
    let outside = format!("<!DOCTYPE m SYSTEM 'http://x/y'>{}", &text[laughs.len()..]);
    assert_eq!(wrong(&outside).1, MetalinkErrorKind::Doctype);
    assert_eq!(in_file("<url>&b;</url>"), MetalinkErrorKind::Entity("b".into()));
    assert!(matches!(wrong(&text[laughs.len()..]).1, MetalinkErrorKind::Xml(_)));
}

#[test]
fn markup_of_others_is_passed_over() {
    let blake3 = hex(7, 32);
    let file = file(&format!(
        "<x:size xmlns:x='urn:x'>9</x:size><!-- <size>8</size> -->\
         <size> <x:y xmlns:x='urn:x'>1</x:y>3\n</size>\
         <other><size>4</size><hash type='sha-256'>zz</hash></other><?pi x?>\
         <hash type='md5'>zz</hash><hash>zz</hash><hash type='BLAKE3'>\n{}</hash>\
         <url priority='0' location='narnia'><![CDATA[http://h/a&b]]></url><url>&#104;ttp://h/?a&amp;b</url>\
         <url>rsync://h/x</url><url>x</url><metaurl mediatype='torrent'>http://h/x</metaurl>",
        blake3.to_uppercase()
    ))
    .unwrap();
    assert_eq!((file.size, file.hashes.blake3), (Some(3), Some([7; 32])));
    let urls: Vec<_> = file.mirrors.iter().map(|m| (m.url.as_str(), m.priority, &m.location)).collect();
    assert_eq!(urls, [("http://h/a&b", PRIORITY_LAST, &None), ("http://h/?a&b", PRIORITY_LAST, &None)]);
    assert_eq!(file.relative_mirrors, [("x".to_owned(), PRIORITY_LAST)]);
    assert_eq!((file.ignored_mirrors, file.leaves), (1, None));
    // The same content with a namespace prefix and a byte-order mark.
    let text = format!("\u{feff}<m:metalink xmlns:m='{NAMESPACE_4}'><m:file name='x'/></m:metalink>");
    assert_eq!(Metalink::parse(text.as_bytes()).unwrap().files[0].name, "x");
}

#[test]
fn pieces_of_sha_512_count_and_weak_hashes_are_noted() {
    let (long, weak) = (hex(7, 64), hex(1, 20));
    let inner = format!(
        "<size>5</size><hash type='sha-1'>{weak}</hash><hash type='MD5'>no matter</hash>\
         <hash type='sha-512'>{long}</hash><hash type='sha-1'>{weak}</hash>\
         <pieces length='5' type='sha-512'><hash>{long}</hash></pieces>\
         <pieces length='5' type='sha-256'><hash>{}</hash></pieces>",
        hex(8, 32)
    );
    let file = file(&inner).expect("it is one");
    assert_eq!(file.ignored_hashes, ["sha-1", "md5"]);
    assert_eq!(file.hashes.digests.sha512, Some([7; 64]));
    assert_eq!(file.pieces, Some(Pieces { bytes: 5, hashes: PieceHashes::Sha512(vec![[7; 64]]) }));
}

#[test]
fn sha_384_counts_of_the_whole_and_of_pieces() {
    let long = hex(7, 48);
    let inner = format!(
        "<size>5</size><hash type='sha-384'>{long}</hash>\
         <pieces length='5' type='SHA384'><hash>{long}</hash></pieces>"
    );
    let read = file(&inner).expect("it is one");
    assert_eq!(read.hashes.digests, Digests { sha384: Some([7; 48]), ..Digests::default() });
    assert_eq!(read.pieces, Some(Pieces { bytes: 5, hashes: PieceHashes::Sha384(vec![[7; 48]]) }));
    assert!(read.ignored_hashes.is_empty() && read.ignored_pieces.is_empty());
    let short = hex(7, 32);
    assert_eq!(
        in_file(&format!("<hash type='sha-384'>{short}</hash>")),
        MetalinkErrorKind::Hash("sha-384", 96, short)
    );
}

#[test]
fn pieces_of_version_3_have_numbers() {
    let read = |numbers: [&str; 2]| {
        let [a, b] = numbers.map(|n| format!("<hash piece='{n}'>{}</hash>", hex(0, 32)));
        let text = format!(
            "<metalink xmlns='{NAMESPACE_3}'><files><file name='x'><verification>\
             <pieces length='4' type='sha256'>{a}{b}</pieces></verification></file></files></metalink>"
        );
        Metalink::parse(text.as_bytes()).map_err(|bad| bad.kind)
    };
    assert!(read(["0", "1"]).is_ok() && read(["1", "0"]).is_ok());
    for bad in [["0", "0"], ["1", "2"], ["0", "x"], ["0", "18446744073709551615"]] {
        assert!(matches!(read(bad), Err(MetalinkErrorKind::PieceNumber(_))), "{bad:?}");
    }
}

#[test]
fn leaves_beside_are_file_names() {
    let at = |leaves: &str| File { leaves: Some(leaves.into()), ..File::default() }.sibling_leaf_list();
    assert_eq!(at("./a%20b.b3leaves").as_deref(), Some(&b"a b.b3leaves"[..]));
    for elsewhere in ["../x", "a/b", "http://h/x", "x:y", "%2e%2e", "a%2fb", "/x", "x?y", "x#y", ""] {
        assert_eq!(at(elsewhere), None, "{elsewhere}");
    }
}

#[test]
fn what_nobody_could_read_is_not_written() {
    let good = File { name: "x".into(), size: Some(5), ..File::default() };
    let of = |file: File| Metalink { files: vec![file] }.emit().map_err(|bad| bad.kind);
    assert!(of(good.clone()).is_ok());
    assert_eq!(Metalink::default().emit().map_err(|bad| bad.kind), Err(MetalinkErrorKind::Empty));
    assert!(matches!(of(File { name: "../x".into(), ..good.clone() }), Err(MetalinkErrorKind::Name(_))));
    assert!(matches!(of(File { size: Some(u64::MAX), ..good.clone() }), Err(MetalinkErrorKind::Size(_))));
    assert!(matches!(
        of(File { leaves: Some("a b".into()), ..good.clone() }),
        Err(MetalinkErrorKind::Leaves(_))
    ));
    let sha256 = |n| PieceHashes::Sha256(vec![[0; 32]; n]);
    let pieces = |bytes, n| File { pieces: Some(Pieces { bytes, hashes: sha256(n) }), ..good.clone() };
    assert!(of(pieces(4, 2)).is_ok());
    assert!(matches!(of(pieces(4, 1)), Err(MetalinkErrorKind::PieceCount { .. })));
    assert!(matches!(of(pieces(0, 0)), Err(MetalinkErrorKind::PieceBytes(_))));
}

fn hashes() -> impl Strategy<Value = Hashes> {
    let sha384 = of(vec(any::<u8>(), 48).prop_map(|bytes| bytes.try_into().unwrap()));
    let sha512 = of(vec(any::<u8>(), 64).prop_map(|bytes| bytes.try_into().unwrap()));
    (any::<Option<[u8; 32]>>(), sha384, sha512, any::<Option<[u8; 32]>>()).prop_map(
        |(sha256, sha384, sha512, blake3)| Hashes { digests: Digests { sha256, sha384, sha512 }, blake3 },
    )
}

fn a_file() -> impl Strategy<Value = File> {
    let name = "[^/\\p{C}]{1,40}(/[^/\\p{C}]{1,40}){0,2}".prop_filter("a name", |name| is_safe_name(name));
    let mirror = ("https?://[a-z]{1,9}/[!-~]{0,40}", 1..=PRIORITY_LAST, of("[a-z]{2}"));
    let mirrors = vec(mirror, 0..4).prop_map(|mirrors| {
        let mut mirrors: Vec<_> = mirrors
            .into_iter()
            .map(|(url, priority, location)| Mirror { url: Url::parse(&url).unwrap(), priority, location })
            .collect();
        mirrors.sort_by_key(|mirror| mirror.priority);
        mirrors
    });
    let each = prop_oneof![
        vec(any::<[u8; 32]>(), 0..4).prop_map(PieceHashes::Sha256),
        vec(any::<[u8; 24]>(), 0..4).prop_map(|all| {
            PieceHashes::Sha384(
                all.into_iter().map(|half| [half, half].concat().try_into().unwrap()).collect(),
            )
        }),
        vec(any::<[u8; 32]>(), 0..4).prop_map(|all| {
            PieceHashes::Sha512(
                all.into_iter().map(|half| [half, half].concat().try_into().unwrap()).collect(),
            )
        }),
    ];
    let pieces = of((1..100_u64, each));
    (name, any::<bool>(), hashes(), pieces, mirrors, of("[!-~]{1,40}")).prop_map(
        |(name, sized, hashes, pieces, mirrors, leaves)| {
            let pieces = pieces.map(|(bytes, hashes)| Pieces { bytes, hashes });
            let of_pieces = pieces.as_ref().map_or(77, |pieces| pieces.bytes * pieces.hashes.len() as u64);
            let size = sized.then_some(of_pieces);
            File { name, size, hashes, pieces, mirrors, leaves, ..File::default() }
        },
    )
}

proptest! {
    #[test]
    fn there_and_back(files in vec(a_file(), 1..3)) {
        let metalink = Metalink { files };
        let text = metalink.emit().unwrap();
        prop_assert_eq!(Metalink::parse(text.as_bytes()), Ok(metalink));
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Metalink::parse(&bytes);
    }

    /// Valid Metalinks with a part replaced or removed: if one can still be read, it can be written and read
    /// again.
    #[test]
    fn nearly_right(
        old: bool, from in 0..2_000_usize, len in 0..40_usize, by in "[<>&;/='\" a-z0-9!\\[\\]-]{0,12}",
    ) {
        let text = if old { OLD } else { EXAMPLE };
        let from = from.min(text.len());
        let end = (from + len).min(text.len());
        prop_assume!(text.is_char_boundary(from) && text.is_char_boundary(end));
        let changed = format!("{}{by}{}", &text[..from], &text[end..]);
        if let Ok(mut read) = Metalink::parse(changed.as_bytes()) {
            prop_assert!(read.files.iter().all(|file| is_safe_name(&file.name)));
            let again = Metalink::parse(read.emit().unwrap().as_bytes()).unwrap();
            for file in &mut read.files {
                file.ignored_hashes.clear();
                (file.ignored_pieces, file.ignored_mirrors) = (Vec::new(), 0);
            }
            prop_assert_eq!(again, read);
        }
    }
}
