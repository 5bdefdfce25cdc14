// The factors with which PiSSA begins, on every rank. Private to engine.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <filesystem>
#include <memory>

namespace qft::engine {

/// A file of them (model/pissa.h) that each rank can open, as long as this lives; what is open stays so. output_dir may be rank
/// 0's alone: the other ranks have copies in the directory for temporary files of their node.
class PissaStart {
 public:
  /// Of the checkpoint that training goes on from, which rank 0 sees; `resumed` empty: new ones, from the weights of `files`.
  /// Collective; throws Error on all ranks.
  PissaStart(const config::RunConfig& config, const model::ModelSpec& spec, const io::ModelFiles& files,
             const std::filesystem::path& resumed, comm::Communicator& comm);

  std::unique_ptr<io::TensorFile> open() const;

 private:
  struct Made {
    ~Made();
    std::filesystem::path file;
  };
  Made made_;
  std::filesystem::path file_;
};

}  // namespace qft::engine
