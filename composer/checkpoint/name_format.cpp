#include "composer/checkpoint/name_format.h"

#include <filesystem>

#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer::saving {

void check_name(const std::string& name, const std::string& latest, const char* who) {
  constexpr std::size_t kLongest = 255 - 4;  // bytes on common file systems, without the suffix during a replacement
  const auto fail = [&](const std::string& what) {
    throw ConfigError(who, ": the name ", formats::shown(name), ' ', what);
  };
  const std::filesystem::path path = name;
  if (name.empty()) fail("is empty");
  if (path.is_absolute()) fail("is an absolute path; it must lie below save_folder");
  for (const std::filesystem::path& part : path) {
    const std::string text = part.string();
    if (text == "..") fail("leaves save_folder");
    if (text.empty() || text == ".") fail("has an empty part");
    if (text.starts_with(kTemporary)) fail(join("begins with ", kTemporary, ", which is reserved for temporary files"));
    if (text.size() > kLongest)
      fail(join("has a part of ", text.size(), " bytes; at most ", kLongest, " are possible"));
    if (text.find('\0') != std::string::npos) fail("has a zero byte");
  }
  check_beside(name, latest, "save_latest_filename", who);
}

void check_beside(const std::string& name, const std::string& link, const char* option, const char* who) {
  const auto is_inside = [](const std::string& inner, const std::string& outer) {
    return inner == outer || inner.starts_with(outer + '/');
  };
  if (!link.empty() && (is_inside(name, link) || is_inside(link, name)))
    throw ConfigError(who, ": the name ", formats::shown(name), " collides with the link of ", option, ", ",
                      formats::shown(link), "; choose another name");
}

}  // namespace composer::saving
