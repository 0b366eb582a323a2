//! Finds the families of generic netlink (`linux/genetlink.h`), whose numbers differ from boot to boot.

use nix::sys::socket::SockProtocol;

use super::message::{Attributes, NLM_F_REQUEST, Request, u16_at};
use super::socket::{Failure, Socket};

/// `GENL_ID_CTRL`: the family that tells the numbers of other families.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// The size of `struct genlmsghdr`, in bytes.
pub(super) const FIXED: usize = 4;

/// Opens a socket in the calling thread's namespace, and returns it with the number of a family. The error is
/// `ENOENT` if the kernel has no such family.
pub(super) fn open(name: &str) -> Result<(Socket, u16), Failure> {
    let socket = Socket::open(SockProtocol::NetlinkGeneric)?;
    let mut request = Request::new(CONTROL, NLM_F_REQUEST, &[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    request.text(CTRL_ATTR_FAMILY_NAME, name);
    let family = socket.get(request, |message| {
        let mut attributes = Attributes::after(message.body, FIXED);
        attributes.find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID).and_then(|(_, value)| u16_at(value, 0))
    })?;
    Ok((socket, family))
}
