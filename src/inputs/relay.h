// Sends a stream of bytes from one rank through a chain of ranks that all store it. The speed is that of one link for any number
// of ranks.
#pragma once

#include "qft/comm/communicator.h"

#include <cstdint>
#include <functional>
#include <span>

namespace qft::inputs {

/// Reads the next bytes of the stream; false ends the stream. Must not throw: the other ranks wait.
using Read = std::function<bool(std::span<std::byte>)>;
/// Writes the next bytes of the stream, on a separate thread. Must not throw.
using Write = std::function<void(std::span<const std::byte>)>;

/// Rank 0 reads `total` bytes. Every rank forwards them to the next one and writes them if `write` is given. Reading, receiving,
/// sending and writing overlap. Returns false if `read` ended the stream; some meaningless bytes are then written after its end.
/// Collective.
bool relay(comm::Communicator& chain, std::uint64_t total, const Read& read, const Write& write);

}  // namespace qft::inputs
