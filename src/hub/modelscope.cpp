#include "qft/core/error.h"
#include "qft/net/url.h"

#include "api.h"

namespace qft::hub {
namespace {

using nlohmann::json;

constexpr std::size_t kPage = 200;         // entries per request of a data set
constexpr std::size_t kMostListed = 3000;  // entries; the hub silently lists no more of a model

class ModelScope final : public Api {
 public:
  using Api::Api;

  Listing list(net::Client& client) const override {
    Listing listing;
    if (source().kind == Kind::model) {
      const json found = entries(client, list_path("files"));
      require(found.size() < kMostListed, "{}: ModelScope lists only the first {} files and folders: fetch it from Hugging Face",
              source().id, found.size());
      add_all(listing, found);
      return listing;
    }
    for (int page = 1;; ++page) {
      const json found = entries(client, fmt::format("{}&PageNumber={}&PageSize={}", list_path("tree"), page, kPage));
      add_all(listing, found);
      if (found.size() < kPage) return listing;
    }
  }

  net::Request file(const Listing&, const RemoteFile& file) const override {
    return authorized(api(fmt::format("repo?Revision={}&FilePath={}", net::percent_encoded(revision_of(source())),
                                      net::percent_encoded(file.path))));
  }

 protected:
  std::vector<std::string> revisions(net::Client& client) const override {
    std::vector<std::string> names;
    const json answer = json::parse(client.send(authorized(api("revisions"))).body, nullptr, false);
    const json map = answer.is_object() ? answer.value("/Data/RevisionMap"_json_pointer, json()) : json();
    for (const char* key : {"Branches", "Tags"})
      if (map.is_object() && map.contains(key) && map[key].is_array())
        for (const json& ref : map[key])
          if (ref.is_object() && ref.contains("Revision") && ref["Revision"].is_string() && names.size() < 20)
            names.push_back(ref["Revision"].get<std::string>());
    return names;
  }

  bool is_there(net::Client& client) const override { return client.send(authorized(api(""))).ok(); }

 private:
  std::string api(const std::string& what) const {
    const char* segment = source().kind == Kind::dataset ? "datasets" : "models";
    return fmt::format("api/v1/{}/{}{}{}", segment, source().id, what.empty() ? "" : "/", what);
  }

  std::string list_path(const char* what) const {
    return api(fmt::format("repo/{}?Revision={}&Recursive=True", what, net::percent_encoded(revision_of(source()))));
  }

  /// Sends the token as a cookie and as a bearer token, because ModelScope's services differ.
  net::Request authorized(const std::string& path) const {
    net::Request r = request(path);
    if (!r.token.empty()) r.headers.push_back({"Cookie", "m_session_id=" + r.token, true});
    return r;
  }

  json entries(net::Client& client, const std::string& path) const {
    net::Response response;
    const json answer = ask(client, authorized(path), &response);
    const bool refused = answer.is_object() && answer.contains("Success") && answer["Success"] == false;
    if (refused) fail("ModelScope refuses {}: {}", source().id, words_of(response));
    const json data = answer.is_object() && answer.contains("Data") ? answer["Data"] : answer;
    const json files = data.is_object() && data.contains("Files") ? data["Files"] : data;
    if (files.is_null()) return json::array();
    require(files.is_array(), "{}: ModelScope's listing is not a list", source().id);
    return files;
  }

  void add_all(Listing& listing, const json& entries) const {
    for (const json& entry : entries) {
      const auto text = [&](const char* key) {
        return entry.is_object() && entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : std::string();
      };
      if (text("Type") == "tree") continue;
      const std::string path = text("Path"), digest = text("Sha256");
      require(entry.is_object() && entry.contains("Size") && entry["Size"].is_number_unsigned(),
              "{}: ModelScope does not state the size of '{}'", source().id, path);
      add(listing, {path, entry["Size"].get<std::uint64_t>(),
                    digest.empty() ? RemoteFile::Check::size : RemoteFile::Check::sha256, digest});
    }
  }
};

}  // namespace

std::unique_ptr<Api> modelscope_api(Source source, Settings settings, RetryPolicy trying) {
  return std::make_unique<ModelScope>(std::move(source), std::move(settings), std::move(trying));
}

}  // namespace qft::hub
