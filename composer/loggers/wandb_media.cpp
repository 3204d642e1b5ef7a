#include "composer/loggers/wandb_media.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/loggers/json_text.h"
#include "composer/loggers/wandb_file.h"
#include "composer/net/digest.h"
#include "composer/util/png.h"

namespace composer::loggers {
namespace {

constexpr std::int64_t kMostBins = 512;  // as many as W&B's own client makes

// Adds a file to `media`, and returns its JSON without the outer braces.
std::string add_file(WandBMedia& media, const std::string& begin, const std::string& ending, std::string data) {
  const std::string sum = net::sha256(data);
  const std::string path = join("media/", begin, '_', sum.substr(0, 20), ending);
  std::string json = join(R"("path":)", json_text(path), R"(,"sha256":")", sum, R"(","size":)", data.size());
  media.files.push_back({path, std::move(data)});
  return json;
}

std::vector<std::string> mask_files(const LogMask& mask, std::int64_t most) {
  const at::Tensor three = mask.classes.dim() == 2 ? mask.classes.unsqueeze(0) : mask.classes;
  const at::Tensor classes = three.slice(0, 0, most);
  if (classes.numel() > 0 && (classes.min().item<std::int64_t>() < 0 || classes.max().item<std::int64_t>() > 255))
    throw Error("WandBLogger: the classes of mask ", mask.name, " must be from 0 to 255 for W&B");
  return util::png_files({.images = classes.to(at::kByte).unsqueeze(1)}, most).files;
}

std::string json_numbers(const at::Tensor& tensor, std::int64_t every) {
  std::string list;
  const at::Tensor doubles = tensor.to(at::kDouble).contiguous();
  for (std::int64_t i = 0; i < doubles.numel(); i += every)
    (list += list.empty() ? "" : ",") += wandb_json(doubles.const_data_ptr<double>()[i]);
  return '[' + list + ']';
}

}  // namespace

std::string path_below(const std::string& path) {
  constexpr std::size_t kLongest = 150;  // bytes in a name
  std::string below;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    const std::string name = part.string().substr(0, kLongest);
    if (name.empty() || name == "/" || name == "." || name == "..") continue;
    (below += below.empty() ? "" : "/") += name;
  }
  return below.empty() ? std::string("_") : below;
}

WandBMedia wandb_images(const std::string& key, std::int64_t step, const LogImages& images, std::int64_t most) {
  const std::string begin = join(path_below(key), '_', step);
  util::Pngs pngs = util::png_files(images, most);
  WandBMedia media;
  std::vector<std::string> all, masks(pngs.files.size());
  for (std::string& png : pngs.files) all.push_back(add_file(media, "images/" + begin, ".png", std::move(png)));
  for (const LogMask& mask : images.masks) {
    const std::string name = join("images/mask/", path_below(key), '_', path_below(mask.name), '_', step);
    std::vector<std::string> files = mask_files(mask, most);
    for (std::size_t i = 0; i < files.size(); ++i)
      masks[i] += join(masks[i].empty() ? "" : ",", json_text(mask.name), R"(:{"_type":"mask",)",
                       add_file(media, name, ".mask.png", std::move(files[i])), '}');
  }
  const std::string size = join(R"("format":"png","width":)", pngs.width, R"(,"height":)", pngs.height);
  if (all.size() == 1) {
    const std::string its_masks = masks[0].empty() ? "" : join(R"(,"masks":{)", masks[0], '}');
    media.json = join(R"({"_type":"image-file",)", all[0], ',', size, its_masks, '}');
    return media;
  }
  std::string names, all_masks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    names += join(i > 0 ? "," : "", json_text(media.files[i].path));
    all_masks += join(i > 0 ? ",{" : "{", masks[i], '}');
  }
  if (images.masks.empty()) all_masks.clear();
  if (!all_masks.empty()) all_masks = join(R"(,"all_masks":[)", all_masks, ']');
  media.json = join(R"({"_type":"images/separated",)", size, R"(,"count":)", all.size(), R"(,"filenames":[)", names,
                    ']', all_masks, '}');
  return media;
}

WandBMedia wandb_table(const std::string& key, std::int64_t step, const LogTable& table) {
  WandBMedia media;
  const std::string file =
      add_file(media, join("table/", path_below(key), '_', step), ".table.json", json_text(table, wandb_json));
  media.json = join(R"({"_type":"table-file",)", file, R"(,"ncols":)", table.columns.size(), R"(,"nrows":)",
                    table.rows.size(), '}');
  return media;
}

std::string wandb_histogram(const LogHistogram& histogram) {
  at::Tensor counts = histogram.counts.to(at::kDouble), edges = histogram.edges.to(at::kDouble);
  const std::int64_t bins = counts.numel(), every = (bins + kMostBins - 1) / kMostBins;
  if (const std::int64_t missing = (every - bins % every) % every; missing > 0) {
    counts = at::cat({counts, at::zeros({missing}, at::kDouble)});
    edges = at::cat({edges, edges.slice(0, -1).expand({missing})});
  }
  return join(R"({"_type":"histogram","values":)", json_numbers(counts.view({-1, every}).sum(1), 1), R"(,"bins":)",
              json_numbers(edges, every), '}');
}

std::string wandb_labels_key(const std::string& key, const LogMask& mask) {
  return join(key, "_wandb_delimeter_", valid_utf8(mask.name));  // spelled as W&B does
}

std::string wandb_labels(const std::string& labels_key, const LogImages& images) {
  std::string labels;
  for (const auto& [number, label] : images.class_labels)
    labels += join(labels.empty() ? "" : ",", '"', number, "\":", json_text(label));
  return join(R"({"type":"mask/class_labels","key":)", json_text(labels_key), R"(,"value":{)", labels, "}}");
}

}  // namespace composer::loggers
