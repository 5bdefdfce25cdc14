// The initial PiSSA factors, on every rank. Private to engine.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <memory>

namespace qft::engine {

/// A file of initial factors (model/pissa.h) that each rank can open while this object lives; open handles stay valid. Only rank
/// 0 may see output_dir, so the other ranks copy the file to their node's temporary directory.
class PissaStart {
 public:
  /// `resumed`: the checkpoint that training resumes from, as rank 0 sees it; empty: computes new factors from the weights of
  /// `files`. Collective; throws Error on all ranks.
  PissaStart(const model::ModelSpec& spec, const io::ModelFiles& files, std::uint64_t seed, const std::filesystem::path& resumed,
             comm::Communicator& comm);

  std::unique_ptr<io::TensorFile> open() const;

 private:
  struct TemporaryFile {
    ~TemporaryFile();
    std::filesystem::path file;
  };
  TemporaryFile temporary_;
  std::filesystem::path file_;
};

}  // namespace qft::engine
