// A stream of bytes from one rank through a chain of others, which all of them keep: at the speed of one wire, for any number.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <functional>
#include <span>

namespace qft::inputs {

/// Gives the next bytes of the stream; false: there will be no more. Not to throw: the others wait.
using Read = std::function<bool(std::span<std::byte>)>;
/// Takes the next bytes of the stream, on a thread of its own. Not to throw.
using Write = std::function<void(std::span<const std::byte>)>;

/// Rank 0 reads `total` bytes; every rank sends to the next what it has, and writes it where `write` is given. Reading, both
/// directions of the wire and writing go on at once. False where `read` ended it; some more bytes of no meaning are written then.
/// Collective.
bool relay(comm::Communicator& chain, std::uint64_t total, const Read& read, const Write& write);

}  // namespace qft::inputs
