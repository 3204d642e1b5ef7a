// Precompiled: what most test files and handlers pay for. Not doctest, which every program that includes it must link.
#pragma once
#include <nlohmann/json.hpp>

#include "composer/pch.h"

#pragma composer_instantiate  // once more, for json.hpp
