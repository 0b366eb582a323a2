//! A mirror list made and read by another program.

use std::fs;

use anabranch::mirror_list::MirrorList;
use anabranch::{Control, ErrorKind, Event, Stop};

#[test]
fn what_is_made_can_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("film");
    fs::write(&path, vec![7; 100_000]).expect("a file");
    let make = || MirrorList::make(&path).url("https://a.example/pub/").expect("a URL");
    let made = make().piece_bytes(1 << 15).expect("a size").run(|_| Control::Continue).expect("a list");
    assert_eq!((made.of_directory, made.bytes), (false, 100_000));
    assert!(made.leaf_list.as_ref().is_some_and(|path| path.is_file()));
    let list = MirrorList::read(&made.metalink).expect("a Metalink");
    assert_eq!(list, made.list);
    let file = &list.files[0];
    assert_eq!((&*file.name, file.size, file.pieces), ("film", Some(100_000), 4));
    assert_eq!(file.mirrors[0].url, "https://a.example/pub/film");
    assert!(file.uri.as_ref().is_some_and(|uri| uri.starts_with("anabranch:b3:")));

    let there = make().run(|_| Control::Continue).expect_err("it is there");
    assert!(there.kind() == ErrorKind::Target, "{there}");
    make().overwrite(true).run(|_| Control::Continue).expect("replaced");
}

#[test]
fn of_a_directory_there_is_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let album = dir.path().join("album");
    fs::create_dir(&album).expect("a directory");
    fs::write(album.join("one"), b"1").expect("a file");
    std::os::unix::fs::symlink("nowhere", album.join("link")).expect("a link");
    let mut notices = Vec::new();
    let made = MirrorList::make(&album).url("https://a.example/album/").expect("a URL").run(|event| {
        if let Event::Notice(notice) = event {
            notices.push(notice);
        }
        Control::Continue
    });
    let made = made.expect("a list");
    assert!(made.of_directory && made.leaf_list.is_none());
    assert_eq!(made.list.files[0].mirrors[0].url, "https://a.example/album/one");
    assert!(notices.len() == 1 && notices[0].contains("link"), "{notices:?}");
}

#[test]
fn nothing_is_written_once_it_is_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("film");
    fs::write(&path, b"film").expect("a file");
    let stop = Stop::new().expect("a stop");
    stop.stop();
    let made = MirrorList::make(&path).stopped_by(&stop).run(|_| Control::Continue);
    assert!(matches!(&made, Err(e) if e.kind() == ErrorKind::Interrupted));
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    assert!(MirrorList::make(&path).url("ftp://a.example/").is_err());
    assert!(MirrorList::make(&path).piece_bytes(1_000).is_err());
}
