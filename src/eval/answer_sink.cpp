#include "answer_sink.h"

#include "qft/core/error.h"

#include <cstdio>
#include <map>
#include <utility>

#include "answers_file.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

/// Holds each line back until all earlier lines are printed.
class StandardOutput final : public AnswerSink {
 public:
  StandardOutput(std::int64_t records, UnansweredLine other) : records_(records), other_(std::move(other)) {}

  const std::vector<std::int64_t>& done() const override { return none_; }

  void add(std::int64_t number, const nlohmann::ordered_json& line) override {
    cut_off_ += line["finish"] == "length" ? 1 : 0;
    waiting_[number] = line.dump();
    print();
  }

  std::int64_t finish() override {
    print();
    QFT_ASSERT(next_ == records_, "{} of {} lines were printed", next_, records_);
    return cut_off_;
  }

 private:
  void print() {
    for (; next_ < records_; ++next_) {
      std::optional<std::string> line = other_(next_);
      if (!line && !waiting_.contains(next_)) break;
      if (!line) line = std::move(waiting_.extract(next_).mapped());
      if (line->empty()) continue;
      *line += '\n';
      require(std::fwrite(line->data(), 1, line->size(), stdout) == line->size(), "cannot write to standard output");
    }
    require(std::fflush(stdout) == 0, "cannot write to standard output");
  }

  std::int64_t records_, next_ = 0, cut_off_ = 0;
  UnansweredLine other_;
  std::map<std::int64_t, std::string> waiting_;
  std::vector<std::int64_t> none_;
};

}  // namespace

std::unique_ptr<AnswerSink> open_sink(const std::string& output, const nlohmann::json& settings, bool overwrite,
                                      std::int64_t records, UnansweredLine other, comm::Communicator& comm) {
  if (output == "-") return std::make_unique<StandardOutput>(records, std::move(other));
  return std::make_unique<AnswersFile>(output, settings, overwrite, records, std::move(other), comm);
}

}  // namespace qft::eval
