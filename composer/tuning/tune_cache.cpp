#include "composer/tuning/tune_cache.h"

#include <fcntl.h>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/kernels/products.h"
#include "composer/util/environment.h"
#include "composer/util/json.h"
#include "composer/util/new_file.h"
#include "composer/util/own_descriptor.h"
#include "composer/util/text.h"

namespace composer {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path default_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "tune.json";
}

Json read_cache(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) return Json::object();
  if (std::filesystem::file_size(file, ignored) > util::kLongestJson) return Json::object();
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  Json all = util::parse_json_or_discard<Json>(text);
  return all.is_object() ? all : Json::object();
}

// Also true for a file that is damaged or empty.
bool looks_like_json(const std::filesystem::path& file) {
  std::ifstream stream(file);
  char first = '{';
  stream >> first;
  return first == '{' || first == '[';
}

// Locks the file against other threads and processes, from reading it to replacing it. Where locks are not supported,
// does nothing.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& file) {
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    if (descriptor_.open(file.string() + ".lock", O_WRONLY | O_CREAT)) (void)descriptor_.wait_for_lock();
  }

 private:
  util::OwnDescriptor descriptor_;
};

Json entry_of(const Tuned& tuned) {
  Json entry = {{"channels_last", tuned.channels_last}, {"autocast", tuned.autocast}, {"threads", tuned.threads}};
  if (tuned.products) entry["products"] = *tuned.products;
  if (tuned.seconds) entry["seconds"] = *tuned.seconds;
  return entry;
}

}  // namespace

TuneCache::TuneCache(std::filesystem::path file) : file_(file.empty() ? default_file() : std::move(file)) {}

std::optional<Tuned> TuneCache::find(const std::string& key) const {
  if (file_.empty()) return {};
  const Json all = read_cache(file_);
  const auto entry = all.find(key);
  if (entry == all.end() || !entry->is_object()) return {};
  const Json layout = entry->value("channels_last", Json()), autocast = entry->value("autocast", Json()),
             threads = entry->value("threads", Json()), products = entry->value("products", Json()),
             seconds = entry->value("seconds", Json());
  constexpr double kMostThreads = 1e6;
  if (!layout.is_boolean() || !autocast.is_boolean() || !threads.is_number_integer()) return {};
  if (const auto count = threads.get<double>(); count < 0 || count > kMostThreads) return {};
  Tuned tuned{.channels_last = layout.get<bool>(), .autocast = autocast.get<bool>(), .threads = threads.get<int>()};
  if (products.is_string() && kernels::ProductTable::from_text(products.get<std::string>()))
    tuned.products = products.get<std::string>();
  if (seconds.is_number() && seconds.get<double>() > 0) tuned.seconds = seconds.get<double>();
  return tuned;
}

void TuneCache::put(const std::string& key, const Tuned& tuned) const { change(key, tuned); }

void TuneCache::forget(const std::string& key) const {
  if (find(key)) change(key, std::nullopt);
}

void TuneCache::change(const std::string& key, const std::optional<Tuned>& tuned) const {
  if (file_.empty()) return;
  try {
    if (std::filesystem::is_directory(file_)) throw Error(file_.string(), " is a folder");
    // /dev/null, for example, is not replaced.
    if (std::filesystem::exists(file_) && !std::filesystem::is_regular_file(file_)) return;
    const Lock lock(file_);
    if (!looks_like_json(file_)) throw Error(file_.string(), " is not a file of tune; it is left as it is");
    Json all = read_cache(file_);
    all.erase(key);
    if (tuned) all[key] = entry_of(*tuned);
    util::write_whole_file(file_, all.dump(1) + '\n');
  } catch (const std::exception& error) {
    warn(join("tune: what was measured is not kept: ", error.what()));
  }
}

void Tuned::visit_state(StateVisitor& visit) {
  visit("channels_last", channels_last);
  visit("autocast", autocast);
  visit("threads", threads);
  visit("products", products);
}

std::string Tuned::text() const {
  return join(channels_last ? 1 : 0, ' ', autocast ? 1 : 0, ' ', threads, ' ', products ? 1 : 0, '\n',
              products.value_or(""));
}

std::optional<Tuned> Tuned::parse(const std::string& text) {
  if (text.empty()) return std::nullopt;
  util::InText in(text);
  Tuned tuned;
  bool has_products = false;
  in >> tuned.channels_last >> tuned.autocast >> tuned.threads >> has_products;
  if (has_products) tuned.products = text.substr(text.find('\n') + 1);
  return tuned;
}

}  // namespace composer
