#include "qft/core/error.h"
#include "qft/net/url.h"

#include <set>
#include <string_view>

#include "api.h"

namespace qft::hub {
namespace {

using nlohmann::json;

/// Returns the address in "<https://...>; rel="next"", the header of a listing with more pages.
std::string next_page(const net::Response& response) {
  const std::string_view link = response.header("link");
  const std::size_t mark = link.find("rel=\"next\"");
  if (mark == link.npos) return {};
  const std::size_t begin = link.rfind('<', mark), end = link.rfind('>', mark);
  return begin == link.npos || end == link.npos || end < begin ? std::string()
                                                               : std::string(link.substr(begin + 1, end - begin - 1));
}

class HuggingFace final : public Api {
 public:
  using Api::Api;

  Listing list(net::Client& client) const override {
    Listing listing;
    const json info = ask(client, request(api("revision/" + net::percent_encoded(revision_of(source())))));
    if (info.is_object() && info.contains("sha") && info["sha"].is_string()) listing.commit = info["sha"].get<std::string>();
    require(is_commit(listing.commit), "{}: the hub states no commit for revision '{}'", source().id, revision_of(source()));
    net::Request page = request(api("tree/" + listing.commit) + "?recursive=true&expand=false");
    const std::string site = net::site_of(page.url);
    std::set<std::string> seen;
    for (net::Response response; !page.url.empty(); page.url = next_page(response)) {
      require(seen.insert(page.url).second, "{}: the hub's listing never ends: it repeats a page after {} pages", source().id,
              seen.size());
      if (net::site_of(page.url) != site) page.token.clear();
      const json entries = ask(client, page, &response);
      require(entries.is_array(), "{}: the hub's listing is not a list", source().id);
      for (const json& entry : entries) add_entry(listing, entry);
    }
    return listing;
  }

  net::Request file(const Listing& listing, const RemoteFile& file) const override {
    return request(fmt::format("{}{}/resolve/{}/{}", source().kind == Kind::dataset ? "datasets/" : "", source().id,
                               listing.commit, net::percent_encoded(file.path, "/")));
  }

 protected:
  std::vector<std::string> revisions(net::Client& client) const override {
    std::vector<std::string> names;
    const net::Response response = client.send(request(api("refs")));
    const json refs = json::parse(response.body, nullptr, false);
    for (const char* key : {"branches", "tags"})
      if (refs.is_object() && refs.contains(key) && refs[key].is_array())
        for (const json& ref : refs[key])
          if (ref.is_object() && ref.contains("name") && ref["name"].is_string() && names.size() < 20)
            names.push_back(ref["name"].get<std::string>());
    return names;
  }

  bool is_there(net::Client& client) const override { return client.send(request(api(""))).ok(); }

 private:
  std::string api(const std::string& what) const {
    const char* segment = source().kind == Kind::dataset ? "datasets" : "models";
    return fmt::format("api/{}/{}{}{}", segment, source().id, what.empty() ? "" : "/", what);
  }

  void add_entry(Listing& listing, const json& entry) const {
    const auto text = [](const json& object, const char* key) {
      return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : std::string();
    };
    require(entry.is_object(), "{}: the hub's listing has an invalid entry: {}", source().id, entry.dump().substr(0, 80));
    if (text(entry, "type") != "file") return;
    const bool large = entry.contains("lfs") && entry["lfs"].is_object();
    const json& sized = large && entry["lfs"].contains("size") ? entry["lfs"] : entry;
    require(sized.contains("size") && sized["size"].is_number_unsigned(), "{}: the hub states no size for '{}'", source().id,
            text(entry, "path"));
    add(listing,
        {text(entry, "path"), sized["size"].get<std::uint64_t>(), large ? RemoteFile::Check::sha256 : RemoteFile::Check::git_blob,
         large ? text(entry["lfs"], "oid") : text(entry, "oid")});
  }
};

}  // namespace

std::unique_ptr<Api> huggingface_api(Source source, Settings settings, RetryPolicy trying) {
  return std::make_unique<HuggingFace>(std::move(source), std::move(settings), std::move(trying));
}

}  // namespace qft::hub
