"""Vocabularies: conversion of words to ids and to character ids; the vocabulary file."""
