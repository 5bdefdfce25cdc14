// Assembles the pack from parts: every rank writes its chunks at places that follow from the sizes of all chunks.
#pragma once

#include "qft/comm/communicator.h"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "part.h"

namespace qft::pack {

/// Fills in the attributes that depend on the items: counts, category names, lengths. Throws Error if no items are left, in one
/// dataset or in all, or if parts differ in their sequences per item.
void complete_attributes(PackAttributes& attributes, const std::vector<PartSummary>& parts);

/// Collective; same arguments on all ranks. `load` reads a chunk's part; `workers` threads call it. Throws the same Error on all
/// ranks; the file is then unusable.
void assemble_pack(comm::Communicator& comm, const std::filesystem::path& file, const PackAttributes& attributes,
                   const std::vector<PartSummary>& chunks, int workers, const std::function<PackPart(std::size_t)>& load);

}  // namespace qft::pack
