// An answers file that several ranks write and an interrupted run can resume. Private to eval.
#pragma once

#include "qft/io/storage.h"
#include "qft/job/output_dir.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "answer_sink.h"

namespace qft::eval {

/// The file case of open_sink().
class AnswersFile final : public AnswerSink {
 public:
  AnswersFile(std::filesystem::path path, const nlohmann::json& settings, bool overwrite, std::int64_t records,
              UnansweredLine other, comm::Communicator& comm);

  const std::vector<std::int64_t>& done() const override { return done_; }
  void add(std::int64_t number, const nlohmann::ordered_json& line) override;
  std::int64_t finish() override;

 private:
  /// Location of a line in the folder.
  struct Place {
    std::size_t file = 0;
    std::uint64_t offset = 0, bytes = 0;
  };
  struct Lines {
    std::vector<std::filesystem::path> files;
    std::map<std::int64_t, Place> places;  ///< by record number
  };
  void take_over(nlohmann::json settings, bool overwrite);
  Lines find_lines() const;
  Lines all_lines() const;
  std::int64_t merge(const Lines& lines) const;

  std::filesystem::path path_, folder_;
  std::int64_t records_;
  UnansweredLine other_;
  comm::Communicator& comm_;
  std::optional<job::OutputDir> output_lock_;
  std::unique_ptr<io::WritableFile> own_file_;
  std::vector<std::int64_t> done_;
};

}  // namespace qft::eval
