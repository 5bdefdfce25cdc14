// From parts to the pack: every rank writes the chunks that it is given, at places known from the sizes of all.
#pragma once

#include "qft/comm/communicator.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "part.h"

namespace qft::pack {

/// Fills in what `attributes` could not know before: counts, category names, lengths. Throws Error where no
/// items are left, of one dataset or of all, or parts disagree in their sequences per item.
void complete_attributes(PackAttributes& attributes, const std::vector<PartSummary>& parts);

/// Collective; same arguments on all ranks. `load` reads a chunk's part; `workers` threads call it. Throws
/// the same Error on all ranks and then leaves a file without use.
void assemble_pack(comm::Communicator& comm, const std::filesystem::path& file, const PackAttributes& attributes,
                   const std::vector<PartSummary>& chunks, int workers, const std::function<PackPart(std::size_t)>& load);

}  // namespace qft::pack
