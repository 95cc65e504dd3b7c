// alerttest runs unit tests of alert rules, in the form that `promtool test rules` reads, on Prometheus' own engine.
//
//	alerttest RULES.yaml TESTS.yaml
//
// promtool itself has three times as many packages, of every service discovery and every cloud. What is left out here is
// recording rules and expressions (promql_expr_test); a file that has them is refused.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"
)

type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         model.Duration    `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type testFile struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []test         `yaml:"tests"`
}

type test struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Input    []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []struct {
		At        model.Duration `yaml:"eval_time"`
		Alertname string         `yaml:"alertname"`
		Expected  []alert        `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

type alert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: alerttest RULES.yaml TESTS.yaml")
		os.Exit(2)
	}
	failures, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, failure := range failures {
		fmt.Println(failure)
	}
	if len(failures) > 0 {
		os.Exit(1)
	}
}

func run(rulesPath, testsPath string) ([]string, error) {
	var known ruleFile
	var told testFile
	if err := errors.Join(read(rulesPath, &known), read(testsPath, &told)); err != nil {
		return nil, err
	}
	if told.EvaluationInterval <= 0 {
		return nil, fmt.Errorf("%s: evaluation_interval is missing", testsPath)
	}
	rules := map[string]rule{}
	for _, group := range known.Groups {
		for _, each := range group.Rules {
			if _, twice := rules[each.Alert]; twice || each.Alert == "" {
				return nil, fmt.Errorf("%s: %q: a rule has no name of its own", rulesPath, each.Alert)
			}
			rules[each.Alert] = each
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	var failures []string
	for _, each := range told.Tests {
		failed, err := each.run(engine, rules, time.Duration(told.EvaluationInterval))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", testsPath, each.Name, err)
		}
		failures = append(failures, failed...)
	}
	return failures, nil
}

// read decodes a file strictly: what is not known here is not passed over.
func read(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (t test) run(engine *promql.Engine, rules map[string]rule, every time.Duration) ([]string, error) {
	var stored memory
	for _, input := range t.Input {
		name, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(input.Series + " " + input.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", input.Series, err)
		}
		stored.add(name, values, time.Duration(t.Interval))
	}
	until := map[string]time.Duration{}
	for _, asked := range t.Alerts {
		until[asked.Alertname] = max(until[asked.Alertname], time.Duration(asked.At))
	}
	steps := map[string][][]string{}
	for name, last := range until {
		known, ok := rules[name]
		if !ok {
			return nil, fmt.Errorf("there is no alert %q", name)
		}
		fires, err := known.firing(engine, stored, last, every)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		steps[name] = fires
	}
	var failures []string
	for _, asked := range t.Alerts {
		fires := steps[asked.Alertname][time.Duration(asked.At)/every]
		var expected []string
		for _, each := range asked.Expected {
			expected = append(expected, shown(each.Labels, each.Annotations))
		}
		slices.Sort(expected)
		if !slices.Equal(expected, fires) {
			failures = append(failures, fmt.Sprintf("%s: %s at %s: expected %s, fires %s",
				t.Name, asked.Alertname, asked.At, list(expected), list(fires)))
		}
	}
	return failures, nil
}

// firing evaluates a rule from 0 on, as a Prometheus would: an alert fires once its series was there for so long. What
// fires is returned for each evaluation.
func (r rule) firing(engine *promql.Engine, stored memory, until, every time.Duration) ([][]string, error) {
	since := map[uint64]time.Duration{}
	var steps [][]string
	for at := time.Duration(0); at <= until; at += every {
		result, err := instant(engine, stored, r.Expr, at)
		if err != nil {
			return nil, err
		}
		active := map[uint64]time.Duration{}
		var fires []string
		for _, sample := range result {
			key := sample.Metric.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).Hash()
			active[key] = at
			if begun, ok := since[key]; ok {
				active[key] = begun
			}
			if at-active[key] >= time.Duration(r.For) {
				said, err := r.shown(engine, stored, sample, at)
				if err != nil {
					return nil, err
				}
				fires = append(fires, said)
			}
		}
		slices.Sort(fires)
		steps, since = append(steps, fires), active
	}
	return steps, nil
}

func instant(engine *promql.Engine, stored memory, expr string, at time.Duration) (promql.Vector, error) {
	query, err := engine.NewInstantQuery(context.Background(), stored, nil, expr, time.Unix(0, 0).Add(at))
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	return slices.Clone(vector), err
}

// shown fills in the templates of labels and annotations.
func (r rule) shown(engine *promql.Engine, stored memory, sample promql.Sample, at time.Duration) (string, error) {
	own := sample.Metric.Map()
	delete(own, model.MetricNameLabel)
	data := template.AlertTemplateData(own, map[string]string{}, "", sample)
	filled := func(texts map[string]string) (map[string]string, error) {
		said := map[string]string{}
		for name, text := range texts {
			expander := template.NewTemplateExpander(
				context.Background(), "{{$labels := .Labels}}{{$value := .Value}}"+text, r.Alert, data,
				model.Time(at.Milliseconds()),
				func(_ context.Context, expr string, _ time.Time) (promql.Vector, error) {
					return instant(engine, stored, expr, at)
				},
				&url.URL{}, nil,
			)
			expanded, err := expander.Expand()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			said[name] = expanded
		}
		return said, nil
	}
	set, err := filled(r.Labels)
	if err != nil {
		return "", err
	}
	annotations, err := filled(r.Annotations)
	if err != nil {
		return "", err
	}
	maps.Copy(own, set)
	return shown(own, annotations), nil
}

func shown(names, annotations map[string]string) string {
	return labels.FromMap(names).String() + " " + labels.FromMap(annotations).String()
}

func list(alerts []string) string {
	if len(alerts) == 0 {
		return "nothing"
	}
	return strings.Join(alerts, " and ")
}
