#include "answer_sink.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/job/output_dir.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

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

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kProgram = "qft generate";  // marks a folder as written by qft
constexpr const char* kSettings = "settings.json";
constexpr const char* kLines = ".jsonl";
constexpr std::size_t kWriteBytes = 1 << 20;  // per write

/// Parses a line of answers; returns null for anything else, such as a torn last line.
json line_from(const std::string& text) {
  json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object() || !line.contains("index") || !line["index"].is_number_integer()) return {};
  return line.contains("error") || (line.contains("predict") && line.contains("finish")) ? line : json();
}

bool holds_answers(const fs::path& path) {
  std::ifstream in(path);
  std::string first;
  return std::getline(in, first) && !line_from(first).is_null();
}

/// Returns text such as "temperature 0.95 -> 0.5, prompts differ"; long values are hashes, which are not printed.
std::string differences(const json& before, const json& now) {
  std::vector<std::string> all;
  for (const auto& [key, value] : now.items()) {
    const json was = before.value(key, json());
    if (was == value) continue;
    const bool is_hash = value.is_string() && value.get_ref<const std::string&>().size() == 32;
    all.push_back(is_hash ? fmt::format("{} differ", key) : fmt::format("{} {} -> {}", key, was.dump(), value.dump()));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string read_range(const fs::path& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  io::File::open_read(file).pread(offset, text.data(), bytes);
  return text;
}

AnswersFile::AnswersFile(fs::path path, const json& settings, bool overwrite, std::int64_t records, UnansweredLine other,
                         comm::Communicator& comm)
    : path_(std::move(path)), folder_(path_.string() + ".part"), records_(records), other_(std::move(other)), comm_(comm) {
  output_lock_.emplace(folder_, comm, kProgram);
  const auto shared = job::ranks_sharing(comm, folder_);
  comm::agreed(comm, [&] {
    require(shared[static_cast<std::size_t>(comm.rank())],
            "this rank does not see the folder '{}' of rank 0: name an --output on storage that all nodes share",
            folder_.string());
  });
  std::string done;
  const std::string start = comm::on_root(comm, [&] {
    take_over(settings, overwrite);
    const Lines lines = find_lines();
    for (const auto& [number, place] : lines.places) done.append(reinterpret_cast<const char*>(&number), sizeof number);
    int last = 0;
    for (const fs::path& file : lines.files) last = std::max(last, std::atoi(file.filename().c_str()));
    return fmt::format("{:04}", last + 1);
  });
  done = comm::broadcast_string(comm, std::move(done));
  done_.resize(done.size() / sizeof(std::int64_t));
  if (!done.empty()) std::memcpy(done_.data(), done.data(), done.size());
  comm::agreed(comm,
               [&] { own_file_ = io::posix_storage().create(folder_ / fmt::format("{}-{:04}{}", start, comm.rank(), kLines)); });
}

/// Keeps lines written with the same settings; drops or refuses lines with other settings.
void AnswersFile::take_over(json settings, bool overwrite) {
  settings["format"] = kProgram;
  io::Storage& storage = io::posix_storage();
  const fs::path file = folder_ / kSettings;
  std::vector<fs::path> lines;
  for (const std::string& name : storage.list(folder_))
    if (fs::path(name).extension() == kLines) lines.push_back(folder_ / name);
  const json before = fs::exists(file) ? json::parse(io::read_text_file(file), nullptr, /*allow_exceptions=*/false) : json();
  if (before == settings) return;
  if (before.is_object() && before.value("format", json()) == kProgram) {
    if (!overwrite)
      fail_config(
          "'{}' holds the answers of an interrupted run with other settings: {}. Restore them to resume, name another "
          "--output, or set overwrite_output_dir=true to drop those answers",
          folder_.string(), differences(before, settings));
  } else if (!lines.empty() || fs::exists(file)) {
    fail_config("'{}' holds files of another program: name another --output", folder_.string());
  }
  for (const fs::path& path : lines) storage.remove(path);
  io::atomic_write_file(storage, file, settings.dump(2) + "\n");
}

void AnswersFile::add(std::int64_t /*number*/, const nlohmann::ordered_json& line) {
  const std::string text = line.dump() + "\n";
  own_file_->append(text.data(), text.size());
}

AnswersFile::Lines AnswersFile::find_lines() const {
  Lines lines;
  for (const std::string& name : io::posix_storage().list(folder_)) {
    if (fs::path(name).extension() != kLines) continue;
    std::ifstream in(folder_ / name);
    std::uint64_t offset = 0;
    for (std::string text; std::getline(in, text); offset += text.size() + 1) {
      if (in.eof()) break;  // torn line: complete lines end with a line feed
      const json line = line_from(text);
      if (!line.is_null()) lines.places[line["index"].get<std::int64_t>()] = {lines.files.size(), offset, text.size()};
    }
    lines.files.push_back(folder_ / name);
  }
  return lines;
}

/// Retries because network file systems may show another node's file with a delay.
AnswersFile::Lines AnswersFile::all_lines() const {
  std::int64_t lacking = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    Lines lines = find_lines();
    lacking = 0;
    for (std::int64_t i = 0; i < records_; ++i) lacking += !lines.places.contains(i) && !other_(i) ? 1 : 0;
    if (lacking == 0) return lines;
    std::this_thread::sleep_for(std::chrono::milliseconds(50 << attempt));
  }
  fail("'{}' lacks {} of {} lines that ranks have written: put it on storage that all nodes share, then start again to resume",
       folder_.string(), lacking, records_);
}

std::int64_t AnswersFile::merge(const Lines& lines) const {
  io::Storage& storage = io::posix_storage();
  const fs::path temp = io::CommitDir::temp_path(path_);
  const auto out = storage.create(temp);
  std::int64_t cut_off = 0;
  std::string text;
  for (std::int64_t i = 0; i < records_; ++i) {
    std::string line;
    if (const auto found = lines.places.find(i); found == lines.places.end()) {
      line = other_(i).value();
    } else {
      line = read_range(lines.files[found->second.file], found->second.offset, found->second.bytes);
      cut_off += line_from(line).value("finish", "") == "length" ? 1 : 0;
    }
    if (!line.empty()) text += line + '\n';
    if (text.size() < kWriteBytes && i + 1 < records_) continue;
    out->append(text.data(), text.size());
    text.clear();
  }
  out->sync();
  out->close();
  storage.rename(temp, path_);
  storage.sync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  return cut_off;
}

std::int64_t AnswersFile::finish() {
  std::int64_t cut_off = 0;
  comm::agreed(comm_, [&] {
    own_file_->sync();
    own_file_->close();
  });
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    const Lines lines = all_lines();
    output_lock_->lock()->require_held();
    cut_off = merge(lines);
    for (const fs::path& file : lines.files) io::posix_storage().remove(file);
    io::posix_storage().remove(folder_ / kSettings);
  });
  output_lock_.reset();
  std::error_code ignored;
  if (comm_.rank() == 0) fs::remove(folder_, ignored);
  return cut_off;
}

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

void require_output(const fs::path& path, bool overwrite) {
  if (fs::is_directory(path)) fail_config("--output '{}' is a folder: name a file, such as answers.jsonl", path.string());
  if (fs::exists(path) && !fs::is_regular_file(path))
    fail_config("--output '{}' is a pipe or a device, not a file: use --output - for standard output", path.string());
  if (fs::is_symlink(path))
    fail_config("--output '{}' is a link to '{}', and a file would replace it: name that file instead", path.string(),
                fs::read_symlink(path).string());
  io::probe_writable(path.has_parent_path() ? path.parent_path() : fs::path("."));
  if (!fs::exists(path)) return;
  const bool empty = fs::file_size(path) == 0;
  if (!empty && !holds_answers(path))
    fail_config("--output '{}' is another program's file, and qft does not replace it: name a new file", path.string());
  if (!empty && !overwrite)
    fail_config("--output '{}' holds answers: name another file, or set overwrite_output_dir=true to replace it", path.string());
}

std::unique_ptr<AnswerSink> open_sink(const std::string& output, const nlohmann::json& settings, bool overwrite,
                                      std::int64_t records, UnansweredLine other, comm::Communicator& comm) {
  if (output == "-") return std::make_unique<StandardOutput>(records, std::move(other));
  return std::make_unique<AnswersFile>(output, settings, overwrite, records, std::move(other), comm);
}

}  // namespace qft::eval
