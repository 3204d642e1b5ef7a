#pragma once
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace composer {

class Model;

// The type of the trainer's option `model`: a std::shared_ptr to a model.
class AnyModel : public std::shared_ptr<Model> {
 public:
  AnyModel() = default;
  AnyModel(std::nullptr_t) {}
  // Accepts every type, and names the wrong one in the error. Without this constructor, the compiler would only report
  // that the trainer's options cannot be constructed.
  template <class T>
  requires(!std::derived_from<std::remove_cvref_t<T>, AnyModel>) AnyModel(T&& model) {
    static_assert(std::convertible_to<T, std::shared_ptr<Model>>,
                  "not a model: .model takes a std::shared_ptr to a class that derives publicly from composer::Model; "
                  "models::Classifier, models::Regressor and the like train a plain torch::nn module");
    if constexpr (std::convertible_to<T, std::shared_ptr<Model>>)
      std::shared_ptr<Model>::operator=(std::forward<T>(model));
  }
};

}  // namespace composer
