// error: conversion from .int. to non-scalar type .composer::Time. requested
#include "composer/core/time.h"

composer::Time length = 5;
