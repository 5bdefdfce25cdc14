#include "qft/checkpoint/writer.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/core/version.h"
#include "qft/job/output_dir.h"

#include <algorithm>
#include <map>

#include "records.h"
#include "stale.h"
#include "tensor_source.h"
#include <fmt/ranges.h>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMessageBytes = 16 << 20;

FileRecord record_of(const fs::path& path) {
  return {path.filename().string(), fs::file_size(path), hash_file(path)};
}

}  // namespace

CheckpointWriter::CheckpointWriter(comm::Communicator& comm, io::Storage& storage, SaveOptions options)
    : comm_(comm.host()),
      storage_(storage),
      options_(std::move(options)),
      target_(options_.output_dir / directory_name(options_.step)) {
  QFT_ASSERT(options_.step >= 0, "step {}", options_.step);
  std::vector<std::string> left;  // on rank 0, which alone knows from its lock that their runs are dead
  owner_ = comm::on_root(comm_, [&] {
    const std::string owner = random_hex(kOwnerDigits);
    if (options_.lock != nullptr) options_.lock->require_held();
    storage_.create_directory(options_.output_dir);
    left = list_unfinished(storage_, options_.output_dir);
    commit_ = std::make_unique<io::CommitDir>(storage_, target_, owner);
    dir_ = commit_->temp();
    return owner;
  });
  find_shared();
  remove_leftovers(left);
}

CheckpointWriter::~CheckpointWriter() = default;

// Chooses this rank's directory: rank 0's temporary directory, or a private one that is sent to rank 0 at commit.
void CheckpointWriter::find_shared() {
  const fs::path temp = io::CommitDir::temp_path(target_, owner_);
  const std::vector<bool> sees = job::ranks_sharing(comm_, temp);
  comm::agreed(comm_, [&] {
    if (sees[static_cast<std::size_t>(comm_.rank())]) {
      dir_ = temp;
      return;
    }
    storage_.create_directory(options_.output_dir);
    staging_ = std::make_unique<io::CommitDir>(storage_, fs::path(target_.string() + "-" + std::to_string(comm_.rank())), owner_);
    dir_ = staging_->temp();
  });
}

// An interrupted save has the same owner on all disks, for each of its ranks. Ranks that share a disk take turns. Rank 0
// removes its part last, because the others find the leftovers by it. The next save retries failed removals.
void CheckpointWriter::remove_leftovers(const std::vector<std::string>& left) {
  std::vector<std::string> owners;
  for (const std::string& name : left)
    if (const std::string owner = owner_of(name); !owner.empty()) owners.push_back(owner);
  const auto gone =
      nlohmann::json::parse(comm::broadcast_string(comm_, nlohmann::json(owners).dump())).get<std::vector<std::string>>();
  const auto is_gone = [&](const std::string& name) { return std::ranges::find(gone, owner_of(name)) != gone.end(); };
  try {
    for (int turn = 1; turn < comm_.size() && !gone.empty(); ++turn)
      comm::agreed(comm_, [&] {
        if (comm_.rank() != turn || staging_ == nullptr) return;
        std::vector<std::string> theirs = list_unfinished(storage_, options_.output_dir);
        std::erase_if(theirs, [&](const std::string& name) { return !is_gone(name); });
        remove_unfinished(storage_, options_.output_dir, theirs);
      });
    comm::agreed(comm_, [&] {
      if (comm_.rank() == 0) remove_unfinished(storage_, options_.output_dir, left);
    });
  } catch (const Error& e) {
    if (comm_.rank() == 0) log::warn("cannot remove an earlier unfinished save (the next save tries again): {}", e.what());
  }
}

void CheckpointWriter::guarded(const std::function<void()>& body) {
  if (error_.empty()) attempt(body);
}

void CheckpointWriter::attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    if (error_.empty()) error_ = *e.what() != '\0' ? e.what() : "unknown error";
  }
}

void CheckpointWriter::write_slices(std::span<const HostSlice> slices, const std::string& stem) {
  if (slices.empty()) return;
  guarded([&] {
    const std::string name = slice_file_name(stem, comm_.rank(), comm_.size());
    std::vector<io::TensorSpec> specs;
    for (const HostSlice& slice : slices) {
      SliceRecord record = record_slice(slice, name);
      tensors_.push_back(std::move(record.tensor));
      specs.push_back(std::move(record.entry));
    }
    io::SafetensorsWriter writer(storage_, dir_ / name, std::move(specs), {{"format", kShardFormat}});
    for (const HostSlice& slice : slices) writer.append(slice.data, slice.bytes());
    writer.finish();
    files_.push_back({name, writer.file_bytes(), writer.checksum()});
  });
}

void CheckpointWriter::add_file(const std::string& name, const std::function<void(io::Storage&, const fs::path&)>& write) {
  guarded([&] {
    write(storage_, dir_ / name);
    files_.push_back(record_of(dir_ / name));
  });
}

void CheckpointWriter::add_files(const std::function<std::vector<FileRecord>(io::Storage&, const fs::path&)>& write) {
  attempt([&] {
    for (FileRecord& record : write(storage_, dir_)) files_.push_back(std::move(record));
  });
}

// Sends files to rank 0 from disks that it does not see. A failure on either side does not stop the exchange, because both sides
// count its bytes; it is reported afterwards.
void CheckpointWriter::collect_staged(const std::vector<nlohmann::json>& parts) {
  const bool any =
      std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.at("staged").template get<bool>(); });
  std::vector<char> buffer;
  if (any) comm::agreed(comm_, [&] { buffer.resize(kMessageBytes); });  // fail together: no rank may leave the exchange
  for (int rank = 1; rank < comm_.size(); ++rank) {
    if (!parts[static_cast<std::size_t>(rank)].at("staged").get<bool>()) continue;
    if (comm_.rank() != 0 && comm_.rank() != rank) continue;
    for (const FileRecord& record : files_from_json(parts[static_cast<std::size_t>(rank)].at("files"))) {
      std::unique_ptr<io::WritableFile> out;
      std::optional<io::File> in;
      guarded([&] {
        if (comm_.rank() == 0)
          out = storage_.create(dir_ / record.name);
        else
          in = io::File::open_read(dir_ / record.name);
      });
      for (std::uint64_t done = 0; done < record.bytes;) {
        const std::uint64_t bytes = std::min(kMessageBytes, record.bytes - done);
        if (comm_.rank() == 0) {
          comm_.recv(buffer.data(), bytes, DType::u8, rank);
          guarded([&] { out->append(buffer.data(), bytes); });
        } else {
          guarded([&] { in->pread(done, buffer.data(), bytes); });
          comm_.send(buffer.data(), bytes, DType::u8, 0);
        }
        done += bytes;
      }
      if (comm_.rank() == 0) guarded([&] { out->sync(), out->close(); });
    }
  }
  comm::all_agree(comm_, error_);
}

Manifest CheckpointWriter::assemble(const std::vector<nlohmann::json>& parts, const nlohmann::json& state) const {
  Manifest manifest;
  manifest.step = options_.step;
  manifest.world_size = comm_.size();
  manifest.qft_version = version();
  manifest.state = state;
  manifest.run = options_.run;
  std::map<std::string, TensorRecord> tensors;
  for (const nlohmann::json& part : parts) {
    for (FileRecord& f : files_from_json(part.at("files"))) manifest.files.push_back(std::move(f));
    for (TensorRecord& t : tensors_from_json(part.at("tensors"))) {
      const auto [it, fresh] = tensors.try_emplace(t.name, t);
      if (fresh) continue;
      require(it->second.dtype == t.dtype && it->second.shape == t.shape, "ranks disagree about tensor '{}': {} [{}] and {} [{}]",
              t.name, safetensors_name(it->second.dtype), fmt::join(it->second.shape, ", "), safetensors_name(t.dtype),
              fmt::join(t.shape, ", "));
      for (BoxRecord& b : t.boxes)
        for (RangeRecord& r : b.ranges) it->second.add(b.box, std::move(r));
    }
  }
  for (auto& [name, tensor] : tensors) manifest.tensors.push_back(std::move(tensor));
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileRecord& a, const FileRecord& b) { return a.name < b.name; });
  manifest.check();
  for (const FileRecord& f : manifest.files) {
    const fs::path path = dir_ / f.name;
    require(fs::exists(path) && fs::file_size(path) == f.bytes, "rank 0 cannot find the {} bytes of '{}' that were written",
            f.bytes, path.string());
  }
  return manifest;
}

fs::path CheckpointWriter::commit(const nlohmann::json& state) {
  comm::all_agree(comm_, error_.empty() ? "" : fmt::format("checkpoint '{}' is not written: {}", target_.string(), error_));
  const nlohmann::json mine = {{"files", to_json(files_)}, {"tensors", to_json(tensors_)}, {"staged", staging_ != nullptr}};
  std::vector<nlohmann::json> parts;
  for (const std::string& text : comm::all_gather_strings(comm_, mine.dump())) parts.push_back(nlohmann::json::parse(text));
  collect_staged(parts);
  comm::agreed(comm_, [&] {
    if (comm_.rank() != 0) return;
    io::write_file(storage_, dir_ / kManifestFile, assemble(parts, state).to_text());
    if (options_.lock != nullptr) options_.lock->require_held();
    set_aside(storage_, target_);
    commit_->commit();
    if (options_.save_total_limit.value_or(0) > 0)
      prune_checkpoints(storage_, options_.output_dir, *options_.save_total_limit, target_, options_.best_checkpoint);
  });
  staging_.reset();
  return target_;
}

}  // namespace qft::checkpoint
